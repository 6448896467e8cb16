"""``fedforget reproduce``: the tables and figures of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.data.named import NAMES
from fedforget.errors import ConfigError, unknown_choice
from fedforget.experiments import page
from fedforget.experiments.results import Results, as_text
from fedforget.experiments.runner import Job, Progress, Runner
from fedforget.experiments.studies import PRESETS, STUDIES, Choices, select_studies

OUT = Path("runs") / "reproduction"


def reproduce(
    what: Annotated[str, typer.Argument(help=f"{', '.join(STUDIES)}, all, or page to only write the page.")],
    preset: Annotated[str, typer.Option(help="paper: the paper's settings; quick: a small run in minutes.")] = "paper",
    datasets: Annotated[str | None, typer.Option(help="Data sets, by name or file, comma-separated.")] = None,
    models: Annotated[str | None, typer.Option(help="Models, comma-separated.")] = None,
    malicious: Annotated[str | None, typer.Option(help="Fractions of malicious users, comma-separated.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, starting at 0.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training.")] = None,
    workers: Annotated[int, typer.Option(help="Federations at a time. Timed studies always run one.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for cells.csv, the plots and the page.")] = OUT,
    work: Annotated[
        Path | None, typer.Option(help="Folder for temporary federations (up to 70 GB for ncf); default OUT/work.")
    ] = None,
    into: Annotated[Path | None, typer.Option(help="A page whose marked section is replaced.")] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the tables and figures of the paper. Finished experiments are not repeated."""
    results = Results(out / "cells.csv")
    if what != "page":
        choices = _choices(preset, datasets, models, malicious, seeds, rounds)
        _at_least_one("workers", workers)
        show.tell_if_compiling()
        for name, study in select_studies(what).items():
            runner = Runner(results, work or out / "work", workers=1 if study.timed else workers, data=folder)
            jobs = runner.jobs(study.experiments(choices), timed=study.timed)
            with _progress_bar(name, jobs, results, quiet=as_json) as on_poll:
                runner.run(jobs, on_poll)
    frame = results.frame()
    if not frame.height:
        raise ConfigError(
            f"{results.path} has no finished cell.", "Run a study first, such as: fedforget reproduce table-1"
        )
    written = page.write(out, frame, into)
    cells = [as_text(row) for row in frame.iter_rows(named=True)]
    text = f"{frame.height} finished cells: {results.path}\nThe page: {written}"
    show.result({"cells": cells, "page": str(written)}, as_json, text)


def _choices(
    preset: str,
    datasets: str | None,
    models: str | None,
    malicious: str | None,
    seeds: int | None,
    rounds: int | None,
) -> Choices:
    """The preset with the options that were given."""
    if preset not in PRESETS:
        raise unknown_choice("preset", preset, list(PRESETS))
    given: dict[str, Any] = {
        "datasets": None if datasets is None else _datasets(datasets),
        "models": None if models is None else opt.named_models(models),
        "malicious": None if malicious is None else _fractions(malicious),
        "seeds": None if seeds is None else tuple(range(_at_least_one("seeds", seeds))),
        "rounds": None if rounds is None else _at_least_one("rounds", rounds),
    }
    return replace(PRESETS[preset], **{name: value for name, value in given.items() if value is not None})


def _datasets(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    for name in names:
        if name not in NAMES and not Path(name).is_file():
            raise unknown_choice("data set", name, NAMES)
    return names


def _fractions(text: str) -> tuple[float, ...]:
    try:
        fractions = tuple(float(part) for part in text.split(","))
    except ValueError:
        fractions = (-1.0,)
    if not all(0 < fraction < 1 for fraction in fractions):
        raise ConfigError(
            f"malicious is {text!r}.", "Give fractions between 0 and 1, separated by commas, such as 0.1,0.2."
        )
    return fractions


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name} is {value}.", "Give at least 1.")
    return value


@contextmanager
def _progress_bar(name: str, jobs: Sequence[Job], results: Results, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error."""
    done = Progress(jobs, results)
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[done]} of {task.fields[cells]} cells"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
        console=show.notes,
        disable=quiet,
    )
    with bar:
        task = bar.add_task(name, total=1.0, done=0, cells=len(done.experiments))

        def on_poll() -> None:
            finished, fraction = done.read()
            bar.update(task, completed=fraction, done=finished)

        yield on_poll
