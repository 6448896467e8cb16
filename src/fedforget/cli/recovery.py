"""How a comparison of ways to forget is shown in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from fedforget.experiments.plots import in_bytes
from fedforget.experiments.ways import WAYS

COLUMNS = ("", "sampled", "full", "rounds", "seconds", "log a device")
CAPTION = (
    "HR@10/NDCG@10 in percent over those who stay: each test item against 99 others, then against all items. Seconds "
    "of unlearning, and the speed-up over Retrain, which is also the clean reference: what the same cohorts learn "
    "without the malicious users. Rounds: how often devices were asked. Log: all that a device keeps for it, and its "
    "share of the item table."
)


def recovery_table(
    methods: Mapping[str, Mapping[str, Any]],
    title: str,
    popular: Mapping[str, Any] | None = None,
    ials: Mapping[str, Mapping[str, Any]] | None = None,
) -> Table:
    """One row a method, as ``Outcome.to_dict`` gives it, after the most popular items and before those of Fed-iALS."""
    table = Table(title=title, caption=CAPTION, box=box.SIMPLE_HEAD, caption_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    if popular is not None:
        table.add_row("Most popular", *_accuracy(popular), "–", "–", "–", end_section=True)
    labelled = [(WAYS[name].label, row) for name, row in methods.items()]
    others = [(f"iALS, {WAYS[name].label.split()[-1].lower()}", row) for name, row in (ials or {}).items()]
    for label, row in [*labelled, *others]:
        table.add_row(
            label,
            *_accuracy(row),
            str(row["communication_rounds"] or "–"),
            _seconds(row),
            f"{in_bytes(row['log']['total'])} {100 * row['log']['total'] / row['log']['item_table']:.2g}%",
            end_section=bool(others) and label == labelled[-1][0],
        )
    return table


def _seconds(row: Mapping[str, Any]) -> str:
    factor = f" {row['speedup']:>4.1f}x" if row["speedup"] else ""
    return f"{row['seconds']:.2f}{factor}" if row["seconds"] else "–"


def _accuracy(row: Mapping[str, Any]) -> list[str]:
    return [f"{100 * row[kind]['hr']:.1f}/{100 * row[kind]['ndcg']:.1f}" for kind in ("sampled", "full")]
