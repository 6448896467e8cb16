"""The table of unlearning variants, as shown in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from fedforget.cli import show
from fedforget.experiments.plots import in_bytes
from fedforget.experiments.variants import VARIANTS

COLUMNS = ("", "sampled", "full", "rounds", "seconds", "device log")
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
    style: Any = {"caption": CAPTION, "box": box.SIMPLE_HEAD, "caption_justify": "left"}
    table = show.table(COLUMNS, [], no_wrap=True, title=title, **style)
    if popular is not None:
        table.add_row("Most popular", *_accuracy(popular), "–", "–", "–", end_section=True)
    for name, row in methods.items():
        table.add_row(VARIANTS[name].label, *_cells(row))
    table.add_section()
    for name, row in (ials or {}).items():
        table.add_row(f"iALS, {VARIANTS[name].label.split()[-1].lower()}", *_cells(row))
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    log, speedup = row["log"], f" {row['speedup']:>4.1f}x" if row["speedup"] else ""
    seconds = f"{row['seconds']:.2f}{speedup}" if row["seconds"] else "–"
    size = f"{in_bytes(log['total'])} {100 * log['total'] / log['item_table']:.2g}%"
    return [*_accuracy(row), str(row["communication_rounds"] or "–"), seconds, size]


def _accuracy(row: Mapping[str, Any]) -> list[str]:
    return [f"{100 * row[kind]['hr']:.1f}/{100 * row[kind]['ndcg']:.1f}" for kind in ("sampled", "full")]
