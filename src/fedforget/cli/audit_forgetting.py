"""``fedforget audit forgetting``: can an attacker tell users who were forgotten from users who never took part?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.data import load
from fedforget.experiments.forgetting.analysis import BEFORE_AFTER, MEMBERSHIP, SNAPSHOTS
from fedforget.experiments.forgetting.audit import PAGE, RESULT, Audit, audit
from fedforget.experiments.forgetting.cases import CASES
from fedforget.experiments.forgetting.methods import DEFAULT
from fedforget.experiments.forgetting.worlds import OnWorld
from fedforget.models import MODELS
from fedforget.server.presets import ROUNDS

#: The time left is estimated from the worlds of the last ten minutes.
SPEED_SECONDS = 600.0


def forgetting(
    data: Annotated[str, typer.Argument(help="Data set, by name or file.")],
    out: Annotated[Path, typer.Option(help="Folder for worlds and results; the same command continues there.")],
    model: Annotated[str, typer.Option(help=f"{', '.join(MODELS)}.", rich_help_panel="Configuration")] = "lightgcn",
    preset: opt.BenchPreset = "default",
    methods: Annotated[
        str, typer.Option(help="Methods, comma-separated, also with settings (fru:stride=5) and fru-paper.")
    ] = ",".join(DEFAULT),
    worlds: Annotated[int, typer.Option(help="Simulated federations for each kind of leaver; an even number.")] = 32,
    leavers: Annotated[float, typer.Option(help="Fraction of users who leave in a world.")] = 0.05,
    cases: Annotated[str, typer.Option(help="Who leaves, comma-separated.")] = ",".join(CASES),
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = ROUNDS,
    seed: opt.BenchSeed = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worlds at a time, one core and up to 2 GB each; default all.")
    ] = None,
    assignments: opt.Assignments = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Audit forgetting against Retrain: train many federations with and without some users, forget them, attack."""
    show.tell_if_compiling()
    config = opt.run_config(model, preset, None, None, assignments)
    with _progress(quiet=as_json) as on_world:
        result = audit(
            load(data, folder=folder),
            config,
            methods=methods.split(","),
            worlds=worlds,
            leavers=leavers,
            seed=seed,
            out=out,
            cases=cases.split(","),
            rounds=rounds,
            workers=workers,
            source=data,
            on_world=on_world,
        )
    verdicts = [f"{name}: {result.verdict(name).text}" for name in result.settings.methods]
    title = f"{result.settings.config.model.name} on {data}, {worlds} worlds"
    files = f"The page: {out / PAGE}\nFor programs: {out / RESULT}"
    show.result(result.to_dict(), as_json, _table(result, title), *verdicts, files)


def _table(result: Audit, title: str) -> Table:
    """AUC of each method by case and attacker."""
    rows: list[list[str]] = []
    for case in result.cases.values():
        for name, found in case.found.items():
            member = found[MEMBERSHIP]
            area = member.auc
            rate = f"{member.tpr.value:.1%}" if member.tpr else "–"
            cells = [f"{area.value:.3f}", f"{area.low:.3f}–{area.high:.3f}", rate]
            cells += [f"{found[kind].auc.value:.3f}" if kind in found else "–" for kind in (SNAPSHOTS, BEFORE_AFTER)]
            rows.append([CASES[case.name].label if not rows or name == "none" else "", name, *cells])
    columns = ["who leaves", "method", "AUC", "interval", "at 1%", "snapshots", "both models"]
    caption = (
        "AUC from the final model, with its 95% interval; at 1%: found at 1% false alarms; AUC from the snapshots of "
        "all rounds; from the models before and after together, which is no part of the verdict"
    )
    return show.table(columns, rows, left=columns[:2], title=title, caption=caption, box=box.SIMPLE, padding=0)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[OnWorld]:
    """A bar over worlds with the time left, on standard error, from the first world on; then that attacks follow."""
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    left = (TimeRemainingColumn(), TextColumn("left"))
    bar = Progress(*columns, *left, console=show.notes, disable=quiet, speed_estimate_period=SPEED_SECONDS)
    task = bar.add_task("worlds", total=None)

    def on_world(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total, description="worlds" if done < total else "worlds; attacking")

    try:
        yield on_world
    finally:
        bar.stop()
