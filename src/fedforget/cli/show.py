"""How results are shown: tables and progress for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedforget.errors import ConfigError
from fedforget.evaluation import Evaluation
from fedforget.runtime.compiled import compiled_before
from fedforget.server.history import OnRound, RoundRecord

#: Results. Markup and emoji codes are off, since names in the data may look like them.
out = Console(markup=False, emoji=False, highlight=False)
#: Everything that is not a result.
notes = Console(stderr=True, highlight=False)
#: The number of ids that are shown before something that cannot be undone.
SHOWN_IDS = 10


def tell_if_compiling() -> None:
    """Say why the first run after an installation takes longer."""
    if not compiled_before():
        notes.print("First run of this version: compiling its kernels takes up to a minute, once.")


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, default=float))


def lines(text: str) -> None:
    """Print text on standard output without breaking its lines."""
    out.print(text, soft_wrap=True)


def result(value: Any, as_json: bool, *shown: Table | str) -> None:
    """Print a result: a value as JSON for programs, or tables and lines for people."""
    if as_json:
        print_json(value)
        return
    for part in shown:
        out.print(part, soft_wrap=isinstance(part, str))


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be undone, unless ``yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can answer here.", "Add --yes if that is right.")
    notes.print(question, markup=False, soft_wrap=True)
    typer.confirm("Continue?", abort=True, err=True)


def named(ids: Sequence[object], kind: str) -> str:
    """A number of ids, and the first of them."""
    shown = ", ".join(repr(id_) for id_ in ids[:SHOWN_IDS])
    more = f" and {len(ids) - SHOWN_IDS:,} more" if len(ids) > SHOWN_IDS else ""
    return f"{len(ids):,} {kind}{'s' if len(ids) != 1 else ''} ({shown}{more})"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Sequence[str] | None = None,
    no_wrap: bool = False,
    **options: Any,
) -> Table:
    """A table of numbers, aligned right, and text, aligned left: the columns in ``left``, by default the first one."""
    made = Table(**options)
    texts = columns[:1] if left is None else left
    for name in columns:
        made.add_column(name, justify="left" if name in texts else "right", no_wrap=no_wrap)
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def rounds_bar(first: int, last: int, *, quiet: bool) -> Iterator[OnRound]:
    """A progress bar over rounds with the loss and the time left, on standard error; nothing if ``quiet``."""
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


def evaluation_table(label: str, evaluation: Evaluation) -> Table:
    """HR, NDCG and recall of a model in both protocols, in percent."""
    k = evaluation.k
    columns = ("", f"sampled HR@{k}", f"NDCG@{k}", f"full HR@{k}", f"NDCG@{k}", f"recall@{k}")
    row = [label, *(f"{100 * value:.1f}" for value in (*evaluation.sampled.values(), *evaluation.full.values()))]
    return table(columns, [row], caption="percent; sampled: against a few items each; full: against all")
