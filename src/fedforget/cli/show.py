"""How results are shown: tables and progress for people, JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedforget.evaluation import Evaluation
from fedforget.runtime.compiled import compiled_before
from fedforget.server.coordinator import OnRound
from fedforget.server.history import RoundRecord

#: Results; names from the data are shown as they are, not read as markup.
out = Console(markup=False, highlight=False)
#: Everything that is not a result.
notes = Console(stderr=True, highlight=False)


def tell_if_compiling() -> None:
    """Say why the first run after an installation takes longer."""
    if not compiled_before():
        notes.print("First run of this version: compiling its kernels takes up to a minute, once.")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, default=float))


@contextmanager
def rounds_bar(first: int, last: int, *, quiet: bool) -> Iterator[OnRound]:
    """A bar over rounds with the loss and the time left, on standard error; nothing when a program reads."""
    bar = Progress(
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=notes,
        disable=quiet,
    )
    with bar:
        task = bar.add_task("rounds", total=last, completed=first, loss="–")
        refused: Counter[str] = Counter()

        def on_round(record: RoundRecord) -> None:
            loss = "–" if record.loss is None else f"{record.loss:.4f}"
            bar.update(task, completed=record.round, loss=loss)
            refused.update(record.failures.values())

        yield on_round
    for reason, times in refused.items():
        notes.print(f"[yellow]{times} updates did not count:[/] {escape(reason)}.")


def evaluation_table(rows: dict[str, Evaluation], title: str = "") -> Table:
    """One row a model: HR and NDCG in both protocols, in percent."""
    k = next(iter(rows.values())).k
    table = Table(title=title or None, caption="percent; sampled: against a few items each; full: against all")
    table.add_column("")
    for name in (f"sampled HR@{k}", f"NDCG@{k}", f"full HR@{k}", f"NDCG@{k}", f"recall@{k}"):
        table.add_column(name, justify="right")
    for label, result in rows.items():
        values = [*result.sampled.values(), *result.full.values()]
        table.add_row(label, *(f"{100 * value:.1f}" for value in values))
    return table
