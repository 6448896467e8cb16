"""``fedforget quickstart``: train under attack, forget the malicious users, and write a report."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.recovery import recovery_table
from fedforget.data import Interactions, load
from fedforget.errors import DataError, RunError
from fedforget.experiments import machine
from fedforget.experiments.forgetting.demonstration import demonstration
from fedforget.experiments.measures import item_table_bytes
from fedforget.experiments.recovery import Recovery, RecoverySettings
from fedforget.experiments.report import html_report
from fedforget.experiments.variants import select_variants
from fedforget.models import IALS, LightGCN
from fedforget.runtime.files import make_folder, write_file
from fedforget.server.presets import ROUNDS
from fedforget.version import __version__

SYNTHETIC: dict[str, Any] = {"users": 1000, "items": 1500, "mean_items": 60.0}
#: The variant whose federation is kept, and those whose accuracy is measured over the rounds.
KEPT = "fru-device"
CURVES = ("attacked", "retrain", "fru-device", "fru-logged")
#: The variants that are run on Fed-iALS.
IALS_VARIANTS = ("attacked", "retrain", "retrain-condensed")


def quickstart(
    out: Annotated[Path | None, typer.Option(help="Output folder; default runs/quickstart-DATA.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = ROUNDS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Train under attack on MovieLens-100k (or synthetic data), forget the malicious users and write a report."""
    show.tell_if_compiling()
    data, source = _data(folder)
    out = out or Path("runs") / f"quickstart-{source['name']}"
    result = _earlier(out, source["name"], rounds)
    if result is None:
        result = _compare(data, source, rounds, out, quiet=as_json)
    elif not as_json:
        show.notes.print(f"{out} has the result of an earlier run; remove it to run again.", markup=False)
    run, report, setting = out / "run", out / "report.html", result["setting"]
    user = setting["example_user"]
    commands = [
        f"fedforget recommend {run} --user {user}",
        f"fedforget evaluate {run}",
        f"fedforget forget {run} --users {user} --dry-run",
    ]
    write_file(report, html_report(result, commands).encode(), private=False)
    title = f"{setting['data']}: {setting['malicious_users']} malicious of {setting['users']:,} users, {rounds} rounds"
    show.result(
        {**result, "run": str(run), "report": str(report)},
        as_json,
        recovery_table(result["methods"], title, result["most popular"], result["ials"]),
        f"Report with plots: {report}\nFederation after FRU: {run}",
        *(f"  {command}" for command in commands),
    )


def _compare(data: Interactions, source: dict[str, Any], rounds: int, out: Path, *, quiet: bool) -> dict[str, Any]:
    """Run every variant and keep one federation in ``out/run``. An interrupted run resumes in ``out/work``."""
    train, test = data.split(test=0.2, seed=0)
    source = source | {"test": 0.2, "split_seed": 0}
    work, settings = out / "work", RecoverySettings(rounds)
    recovery = Recovery(train, test, LightGCN(), work / "lightgcn", settings, source=source)
    if not quiet:
        show.notes.print(f"{source['name']}: {data}, one client per user, {len(recovery.malicious)} of them malicious.")
    recovery.warm_up()
    with show.rounds_bar(recovery.before.rounds, rounds, quiet=quiet) as on_round:
        recovery.fit(on_round)
    with show.notes.status("Unlearning") as status:
        outcomes = recovery.compare(curves=CURVES, keep=[KEPT], say=lambda label: status.update(f"Unlearning: {label}"))
    with show.notes.status("Unlearning: Fed-iALS"):
        variants = select_variants(IALS_VARIANTS)
        other = Recovery(train, test, IALS(), work / "ials", settings, variants=variants)
        other.warm_up()
        other.fit()
        ials = other.compare()
        other.close()
    with show.notes.status("Auditing: what the models still tell"):
        audit = demonstration(work / "audit")
    result = {
        "setting": _setting(recovery, source["name"]),
        "machine": machine.describe(),
        "methods": {name: outcome.to_dict() for name, outcome in outcomes.items()},
        "most popular": asdict(recovery.popular()),
        "ials": {name: outcome.to_dict() for name, outcome in ials.items()},
        "curves": {name: outcome.curve_dicts() for name, outcome in outcomes.items() if outcome.curve},
        "audit": audit,
    }
    recovery.close()
    write_file(out / "result.json", json.dumps(result, indent=2).encode())
    (work / "lightgcn" / KEPT).rename(out / "run")
    shutil.rmtree(work)
    return result


def _setting(recovery: Recovery, data: str) -> dict[str, Any]:
    fed = recovery.before
    return {
        "data": data,
        "users": fed.train.n_users,
        "items": fed.train.n_items,
        "training_interactions": len(fed.train),
        "malicious": len(recovery.malicious) / fed.train.n_users,
        "malicious_users": len(recovery.malicious),
        "gamma": recovery.config.gamma,
        "rounds": fed.rounds,
        "seed": fed.config.seed,
        "model": fed.model.settings(),
        "item_table_bytes": item_table_bytes(fed),
        "example_user": recovery.train.user_ids.tolist()[0],
        "fedforget": __version__,
    }


def _earlier(out: Path, data: str, rounds: int) -> dict[str, Any] | None:
    """The result of a finished quickstart in the folder; a folder with other files is refused."""
    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if {"result.json", "run"} <= found:
        result: dict[str, Any] = json.loads((out / "result.json").read_text())
        before = result["setting"]["data"], result["setting"]["rounds"]
        if before != (data, rounds):
            raise RunError(
                f"{out} has a quickstart of {before[1]} rounds on {before[0]}, not {rounds} on {data}.",
                "Choose another folder with --out, or remove this one.",
            )
        shutil.rmtree(out / "work", ignore_errors=True)  # may be left from an interrupted run
        return {"ials": {}, "audit": None, **result}
    if found - {"work", "result.json", "report.html"}:
        raise RunError(f"{out} has other files in it.", "Choose an empty or a new folder with --out.")
    make_folder(out / "work")
    return None


def _data(folder: Path | None) -> tuple[Interactions, dict[str, Any]]:
    """MovieLens-100k, or synthetic data if it is not available."""
    try:
        return load("ml-100k", folder=folder), {"name": "ml-100k", "options": {}}
    except DataError as error:
        show.notes.print(f"[yellow]MovieLens-100k is not available; using synthetic data.[/] {error.problem}")
        return load("synthetic", **SYNTHETIC), {"name": "synthetic", "options": SYNTHETIC}
