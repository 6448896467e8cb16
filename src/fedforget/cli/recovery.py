"""The table of unlearning variants, as shown in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from fedforget.experiments.plots import in_bytes
from fedforget.experiments.variants import VARIANTS

COLUMNS = ("", "sampled", "full", "rounds", "seconds", "log per device")
CAPTION = (
    "HR@10/NDCG@10 in percent over the remaining users. sampled: each test item is ranked among 99 others; full: among "
    "all items. Rounds: communication rounds. Seconds: time of unlearning, and speed-up over Retrain. Log: size of the "
    "unlearning log, and its share of the item table. Retrain is the reference."
)


def recovery_table(
    methods: Mapping[str, Mapping[str, Any]],
    title: str,
    popular: Mapping[str, Any] | None = None,
    ials: Mapping[str, Mapping[str, Any]] | None = None,
) -> Table:
    """One row for each outcome, after the most popular items and before the outcomes of Fed-iALS."""
    table = Table(title=title, caption=CAPTION, box=box.SIMPLE_HEAD, caption_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    if popular is not None:
        table.add_row("Most popular", *_accuracy(popular), "–", "–", "–", end_section=True)
    rows = [(VARIANTS[name].label, row) for name, row in methods.items()]
    others = [(f"iALS, {VARIANTS[name].label.split()[-1].lower()}", row) for name, row in (ials or {}).items()]
    for label, row in [*rows, *others]:
        size = f"{in_bytes(row['log']['total'])} {100 * row['log']['total'] / row['log']['item_table']:.2g}%"
        rounds = str(row["communication_rounds"] or "–")
        last = bool(others) and label == rows[-1][0]
        table.add_row(label, *_accuracy(row), rounds, _seconds(row), size, end_section=last)
    return table


def _seconds(row: Mapping[str, Any]) -> str:
    factor = f" {row['speedup']:>4.1f}x" if row["speedup"] else ""
    return f"{row['seconds']:.2f}{factor}" if row["seconds"] else "–"


def _accuracy(row: Mapping[str, Any]) -> list[str]:
    return [f"{100 * row[kind]['hr']:.1f}/{100 * row[kind]['ndcg']:.1f}" for kind in ("sampled", "full")]
