"""``fedforget data``: fetch named data sets, and show the figures of a data set."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Column, Table

from fedforget.cli import show
from fedforget.data import CATALOGUE, NAMES, Summary, data_folder, fetch, load

app = typer.Typer(no_args_is_help=True, help="Fetch data sets and show their figures.")

Data = Annotated[str, typer.Option(help=f"{', '.join(NAMES)}, or the path of a file.")]
Folder = Annotated[Path | None, typer.Option(help="The data folder; default $FEDFORGET_DATA, else the user's cache.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_COLUMN_HELP = "name of the column, or its number from 0 if the file has no header."
UserColumn = Annotated[str | None, typer.Option(help=f"Users: {_COLUMN_HELP}")]
ItemColumn = Annotated[str | None, typer.Option(help=f"Items: {_COLUMN_HELP}")]
TimeColumn = Annotated[str | None, typer.Option(help=f"Times: {_COLUMN_HELP}")]
RatingColumn = Annotated[str | None, typer.Option(help=f"Ratings, with --min-rating: {_COLUMN_HELP}")]
MinRating = Annotated[float | None, typer.Option(help="Only rows with at least this rating count.")]
Separator = Annotated[str | None, typer.Option(help="Column separator; default by the file's suffix.")]


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(CATALOGUE)}.")],
    folder: Folder = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again, even if there is a copy.")] = False,
) -> None:
    """Fetch a named data set into the data folder, once, and check its content."""
    bar = Progress(TextColumn(name), BarColumn(), DownloadColumn(), console=show.notes, transient=True)
    with bar:
        task = bar.add_task(name, total=None)
        path = fetch(
            name,
            folder,
            force=force,
            say=lambda line: show.notes.print(line, markup=False, soft_wrap=True),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    typer.echo(path)


@app.command()
def info(
    name_or_path: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}, or the path of a file.")],
    folder: Folder = None,
    as_json: AsJson = False,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
) -> None:
    """Show the number of users, items and interactions, and their distribution."""
    options = file_options(user_column, item_column, separator)
    figures = dataclasses.asdict(Summary.of(load(name_or_path, folder=folder, **options)))
    table = Table(Column(), Column(overflow="fold"), title=name_or_path, show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:.4%}" if name == "density" else _shown(value))
    show.result({"name": name_or_path, **figures}, as_json, table)


@app.command("add")
def add_command(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    data: Annotated[str, typer.Argument(help="A file with the new interactions.")],
    readmit: Annotated[bool, typer.Option("--readmit", help="Let users who were forgotten join again.")] = False,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
    time_column: TimeColumn = None,
    rating_column: RatingColumn = None,
    min_rating: MinRating = None,
    as_json: AsJson = False,
) -> None:
    """Add interactions to a run, also of new users and with new items. They count from its next round on."""
    from fedforget.simulation.federation import Federation

    options = file_options(user_column, item_column, separator, time_column, rating_column, min_rating)
    more = load(data, **options)
    with closing(Federation.open(run)) as fed:
        added = fed.add(more, readmit=readmit)
    next_step = f"Train with them: fedforget train --out {run} --rounds {fed.rounds + 20}"
    show.result({"run": str(run), **added.to_dict()}, as_json, str(added), next_step)


@app.command("list")
def list_command(folder: Folder = None, as_json: AsJson = False) -> None:
    """List the named data sets, and whether they are in the data folder."""
    path = data_folder(folder)
    listed = [
        {"name": entry.name, "about": entry.about, "here": entry.find(path) is not None} for entry in CATALOGUE.values()
    ]
    listed.append({"name": "synthetic", "about": "Made-up interactions of any size, from a seed", "here": True})
    rows = [(str(entry["name"]), str(entry["about"]), "yes" if entry["here"] else "no") for entry in listed]
    columns = ["name", "about", "here"]
    show.result(listed, as_json, show.table(columns, rows, left=columns, caption=f"Data folder: {path}"))


def file_options(
    user_column: str | None,
    item_column: str | None,
    separator: str | None,
    time_column: str | None = None,
    rating_column: str | None = None,
    min_rating: float | None = None,
) -> dict[str, Any]:
    """The options of ``load`` for a file. Columns in digits are numbers, and ``\\t`` is a tab."""
    options: dict[str, Any] = {}
    columns = {"user": user_column, "item": item_column, "time": time_column, "rating": rating_column}
    for name, column in columns.items():
        if column is not None:
            options[name] = int(column) if column.isdecimal() else column
    if min_rating is not None:
        options["min_rating"] = min_rating
    if separator is not None:
        options["separator"] = separator.replace("\\t", "\t")
    return options


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
