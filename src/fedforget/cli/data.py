"""``fedforget data``: fetch named data sets, and look at interactions before training on them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

from fedforget.data import CATALOGUE, NAMES, Summary, data_folder, fetch, load

app = typer.Typer(no_args_is_help=True, help="Fetch data sets and look at interactions.")

Data = Annotated[str, typer.Option(help=f"{', '.join(NAMES)}, or the path of a file.")]
Folder = Annotated[Path | None, typer.Option(help="The data folder; else $FEDFORGET_DATA, else the user's cache.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_COLUMN_HELP = "name of the column, or its place from 0 in a file without a header."
UserColumn = Annotated[str | None, typer.Option(help=f"Users: {_COLUMN_HELP}")]
ItemColumn = Annotated[str | None, typer.Option(help=f"Items: {_COLUMN_HELP}")]
Separator = Annotated[str | None, typer.Option(help="What separates columns; else by the ending.")]


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(CATALOGUE)}.")],
    folder: Folder = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch anew even if a copy is there.")] = False,
) -> None:
    """Fetch a named data set into the data folder, once, and check its content."""
    console = Console(stderr=True)
    bar = Progress(TextColumn(name), BarColumn(), DownloadColumn(), console=console, transient=True)
    with bar:
        task = bar.add_task(name, total=None)
        path = fetch(
            name,
            folder,
            force=force,
            say=lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
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
    """Show how many users, items and interactions there are, and how they are spread."""
    options = file_options(user_column, item_column, separator)
    figures = dataclasses.asdict(Summary.of(load(name_or_path, folder=folder, **options)))
    if as_json:
        typer.echo(json.dumps({"name": name_or_path, **figures}))
        return
    table = Table(Column(), Column(overflow="fold"), title=Text(name_or_path), show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:.4%}" if name == "density" else _shown(value))
    Console().print(table)


@app.command("list")
def list_command(folder: Folder = None, as_json: AsJson = False) -> None:
    """List the named data sets, and whether they are in the data folder."""
    place = data_folder(folder)
    rows = [(entry.name, entry.about, entry.find(place) is not None) for entry in CATALOGUE.values()]
    rows.append(("synthetic", "Made-up interactions of any size, from a seed", True))
    if as_json:
        typer.echo(json.dumps([{"name": name, "about": about, "here": here} for name, about, here in rows]))
        return
    table = Table("name", "about", "here", caption=Text(f"Data folder: {place}"))
    for name, about, here in rows:
        table.add_row(name, about, "yes" if here else "no")
    Console().print(table)


def file_options(user_column: str | None, item_column: str | None, separator: str | None) -> dict[str, Any]:
    """How to read a file, as `load` takes it; what was not given is left out."""
    options = {"user": _column(user_column), "item": _column(item_column), "separator": _unescaped(separator)}
    return {name: value for name, value in options.items() if value is not None}


def _column(given: str | None) -> str | int | None:
    """A column as the readers want it: digits are a place."""
    return int(given) if given is not None and given.isdecimal() else given


def _unescaped(separator: str | None) -> str | None:
    """A tab is hard to type in a shell, so that \\t stands for it."""
    return separator.replace("\\t", "\t") if separator is not None else None


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
