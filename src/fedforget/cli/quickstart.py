"""``fedforget quickstart``: the whole way in a minute or two, to see it work before reading anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.benchmarks import machine
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.recovery import recovery_table
from fedforget.data import Interactions, load
from fedforget.errors import DataError, RunError
from fedforget.experiments.comparison import Comparison
from fedforget.experiments.measures import item_table_bytes
from fedforget.experiments.outcome import Outcome
from fedforget.experiments.recovery import Recovery
from fedforget.experiments.report import html_report
from fedforget.experiments.ways import chosen_ways
from fedforget.files import make_folder, write_file
from fedforget.models import IALS, LightGCN
from fedforget.presets import ROUNDS
from fedforget.randomness import UserId
from fedforget.version import __version__

SYNTHETIC: dict[str, Any] = {"users": 1000, "items": 1500, "mean_items": 60.0}
#: The way whose federation stays, and those whose accuracy is followed over the rounds.
KEPT = "fru-device"
FOLLOWED = ("attacked", "retrain", "fru-device", "fru-logged")
#: What Fed-iALS is shown with beside them: a model without epochs, for which Retrain is the way to forget.
BESIDE = ("attacked", "retrain", "retrain-condensed")


def quickstart(
    out: Annotated[Path | None, typer.Option(help="Where everything goes; runs/quickstart-DATA if not given.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to train.")] = ROUNDS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Train with malicious users on MovieLens-100k (or made-up data), forget them in every way, and write a report."""
    show.tell_if_compiling()
    data, source = _data(folder)
    out = out or Path("runs") / f"quickstart-{source['name']}"
    comparison = _earlier(out, source["name"], rounds)
    if comparison is None:
        comparison = _compare(data, source, rounds, out, quiet=as_json)
    elif not as_json:
        show.notes.print(f"{out} has the result of an earlier run; remove it to run anew.", markup=False)
    run, report = out / "run", out / "report.html"
    commands = _commands(run, comparison.setting["example_user"])
    write_file(report, html_report(comparison, commands).encode())
    if as_json:
        show.print_json({**comparison.to_dict(), "run": str(run), "report": str(report)})
        return
    values, setting = comparison.to_dict(), comparison.setting
    title = f"{setting['data']}: {setting['malicious_users']} malicious of {setting['users']:,} users, {rounds} rounds"
    show.out.print(recovery_table(values["methods"], title, values["most popular"], values["ials"]))
    show.out.print(f"The report with plots: {report}", soft_wrap=True)
    show.out.print(f"The federation after FRU, to go on with: {run}", soft_wrap=True)
    for command in commands:
        show.out.print(f"  {command}", soft_wrap=True)


def _compare(data: Interactions, source: dict[str, Any], rounds: int, out: Path, *, quiet: bool) -> Comparison:
    """Train, forget in every way, and leave the federation after one of them in ``out/run``.

    Everything in between is in ``out/work``; if this is interrupted, the training there goes on the next time.
    """
    train, test = data.split(test=0.2, seed=0)
    source = source | {"test": 0.2, "split_seed": 0}
    work = out / "work"
    recovery = Recovery(train, test, LightGCN(), work / "lightgcn", rounds=rounds, source=source)
    malicious = len(recovery.malicious)
    if not quiet:
        show.notes.print(f"{source['name']}: {data}, every user one client, {malicious} of them malicious.")
    recovery.warm_up()
    with show.rounds_bar(recovery.before.rounds, rounds, quiet=quiet) as on_round:
        recovery.fit(on_round)
    with show.notes.status("Forgetting them") as status:
        outcomes = recovery.compare(
            curves=FOLLOWED, keep=[KEPT], say=lambda label: status.update(f"Forgetting them: {label}")
        )
    setting = _setting(recovery, source["name"])
    with show.notes.status("The same with Fed-iALS"):
        beside = _beside(train, test, work / "ials", rounds)
    comparison = Comparison(setting, machine.describe(), outcomes, recovery.popular(), beside)
    recovery.close()
    write_file(out / "result.json", comparison.to_json().encode())
    (work / "lightgcn" / KEPT).rename(out / "run")
    shutil.rmtree(work)
    return comparison


def _beside(train: Interactions, test: Interactions, work: Path, rounds: int) -> dict[str, Outcome]:
    """The same attack on Fed-iALS, and what is left of it."""
    recovery = Recovery(train, test, IALS(), work, rounds=rounds, ways=chosen_ways(BESIDE))
    recovery.warm_up()
    recovery.fit()
    outcomes = recovery.compare()
    recovery.close()
    return outcomes


def _setting(recovery: Recovery, data: str) -> dict[str, Any]:
    fed = recovery.before
    return {
        "data": data,
        "users": fed.train.n_users,
        "items": fed.train.n_items,
        "training_interactions": len(fed.train),
        "malicious": len(recovery.malicious) / fed.train.n_users,
        "malicious_users": len(recovery.malicious),
        "gamma": recovery.gamma,
        "rounds": fed.rounds,
        "seed": fed.settings.seed,
        "model": fed.model.settings(),
        "item_table_bytes": item_table_bytes(fed),
        "example_user": recovery.train.user_ids.tolist()[0],
        "fedforget": __version__,
    }


def _earlier(out: Path, data: str, rounds: int) -> Comparison | None:
    """The result that a finished quickstart left in the folder; a folder with anything else is refused."""
    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if {"result.json", "run"} <= found:
        comparison = Comparison.from_json((out / "result.json").read_text())
        had = comparison.setting["data"], comparison.setting["rounds"]
        if had != (data, rounds):
            raise RunError(
                f"{out} has a quickstart of {had[1]} rounds on {had[0]}, not {rounds} on {data}.",
                "Choose another folder with --out, or remove this one.",
            )
        shutil.rmtree(out / "work", ignore_errors=True)  # a kill at the very end may have left it
        return comparison
    if found - {"work", "result.json", "report.html"}:
        raise RunError(f"{out} has other files in it.", "Choose an empty or a new folder with --out.")
    make_folder(out / "work")
    return None


def _commands(run: Path, user: UserId) -> list[str]:
    return [
        f"fedforget recommend {run} --user {user}",
        f"fedforget evaluate {run}",
        f"fedforget forget {run} --users {user} --dry-run",
    ]


def _data(folder: Path | None) -> tuple[Interactions, dict[str, Any]]:
    """MovieLens-100k, or synthetic data where it is neither here nor within reach."""
    try:
        return load("ml-100k", folder=folder), {"name": "ml-100k", "options": {}}
    except DataError as error:
        show.notes.print(f"[yellow]MovieLens-100k is out of reach, so made-up data takes its place.[/] {error.problem}")
        return load("synthetic", **SYNTHETIC), {"name": "synthetic", "options": SYNTHETIC}
