"""``fedforget reproduce``: the paper's tables and figures, and the page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.models import named_models
from fedforget.data.named import NAMES
from fedforget.errors import ConfigError, one_of
from fedforget.reproduction import page
from fedforget.reproduction.effort import Gauge
from fedforget.reproduction.ledger import Ledger
from fedforget.reproduction.studies import PRESETS, STUDIES, Choices, chosen_studies
from fedforget.reproduction.workshop import Job, jobs, work_off

OUT = Path("runs") / "reproduction"


def reproduce(
    what: Annotated[str, typer.Argument(help=f"{', '.join(STUDIES)}, all; or page, to write the page anew.")],
    preset: Annotated[str, typer.Option(help="paper: as in the paper; quick: a look at it in minutes.")] = "paper",
    datasets: Annotated[str | None, typer.Option(help="Which data, by name or file, separated by commas.")] = None,
    models: Annotated[str | None, typer.Option(help="Which models, separated by commas.")] = None,
    malicious: Annotated[str | None, typer.Option(help="Shares of malicious users, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, from 0 on.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training.")] = None,
    workers: Annotated[int, typer.Option(help="Federations at a time; what is timed runs alone all the same.")] = 1,
    out: Annotated[Path, typer.Option(help="Where cells.csv, the figures and the page go.")] = OUT,
    work: Annotated[
        Path | None, typer.Option(help="Where federations are kept meanwhile, for ncf up to 70 GB; else OUT/work.")
    ] = None,
    into: Annotated[Path | None, typer.Option(help="A page whose marked section is to be written anew.")] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's tables and figures, cell by cell; what is done already is not done again."""
    ledger = Ledger(out / "cells.csv")
    if what != "page":
        choices = _choices(preset, datasets, models, malicious, seeds, rounds)
        _at_least_one("workers", workers)
        show.tell_if_compiling()
        for name, study in chosen_studies(what).items():
            todo = jobs(study.cells(choices), ledger, timed=study.timed)
            with _cells_bar(name, todo, ledger, quiet=as_json) as glance:
                work_off(
                    todo, ledger, work or out / "work",
                    workers=1 if study.timed else workers, data=folder, glance=glance,
                )  # fmt: skip
    rows = ledger.rows()
    if not rows:
        raise ConfigError(
            f"{ledger.path} has no finished cell.", "Run a study first, such as: fedforget reproduce table-1"
        )
    written = page.write(out, rows, into)
    if as_json:
        show.print_json({"cells": [row.to_dict() for row in rows], "page": str(written)})
    else:
        show.out.print(f"{len(rows)} finished cells: {ledger.path}", soft_wrap=True)
        show.out.print(f"The page: {written}", soft_wrap=True)


def _choices(
    preset: str,
    datasets: str | None,
    models: str | None,
    malicious: str | None,
    seeds: int | None,
    rounds: int | None,
) -> Choices:
    """The preset, with whatever was chosen in its place."""
    if preset not in PRESETS:
        raise one_of("preset", preset, list(PRESETS))
    given: dict[str, Any] = {
        "datasets": _datasets(datasets),
        "models": None if models is None else named_models(models),
        "malicious": _shares(malicious),
        "seeds": None if seeds is None else tuple(range(_at_least_one("seeds", seeds))),
        "rounds": None if rounds is None else _at_least_one("rounds", rounds),
    }
    return replace(PRESETS[preset], **{name: value for name, value in given.items() if value is not None})


def _datasets(text: str | None) -> tuple[str, ...] | None:
    """Data sets by their names, or files that are there."""
    if text is None:
        return None
    names = tuple(name for name in text.split(",") if name)
    for name in names:
        if name not in NAMES and not Path(name).is_file():
            raise one_of("data set", name, NAMES)
    return names


def _shares(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = (-1.0,)
    if not all(0 < share < 1 for share in shares):
        raise ConfigError(
            f"malicious is {text!r}.", "Give shares between 0 and 1, separated by commas, such as 0.1,0.2."
        )
    return shares


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name} is {value}.", "Give at least 1.")
    return value


@contextmanager
def _cells_bar(name: str, todo: list[Job], ledger: Ledger, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar over the cells of a study with the time left, on standard error."""
    gauge = Gauge(todo, ledger)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} of {task.fields[cells]} cells"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=show.notes,
        disable=quiet,
    )
    with bar:
        task = bar.add_task(name, total=1.0, done=0, cells=len(gauge.cells))

        def glance() -> None:
            done, share = gauge.read()
            bar.update(task, completed=share, done=done)

        yield glance
