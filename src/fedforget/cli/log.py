"""``fedforget log``: sizes of the device logs, part by part, compared with the paper's log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.runs import Run, open_run
from fedforget.device.log.stats import PAPER_ALPHA, PLACES, LogStats, PaperLog, log_stats
from fedforget.errors import ConfigError
from fedforget.experiments.measures import item_table_bytes
from fedforget.experiments.plots import in_bytes
from fedforget.simulation.federation import Federation

#: Labels of the parts of a log.
LABELS = {
    "head": "head and checksum",
    "negatives": "which negatives",
    "kept": "which rows are kept",
    "rows": "item rows",
    "dense": "other tensors (MLP)",
    "private": "user embedding",
    "damaged": "damaged entries",
    "copy": "exact user embedding before the last round",
}

app = typer.Typer(no_args_is_help=True, help="Inspect the update logs of devices.")


@app.callback()
def main() -> None:
    """Make ``stats`` a subcommand; typer would drop the name of an only command."""


@app.command()
def stats(
    run: Run,
    top: Annotated[int, typer.Option(help="Number of devices with the largest logs to show.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the size of a device's log, compared with the item table and the paper's log."""
    if top < 0:
        raise ConfigError(f"top is {top}.", "Give 0 or more.")
    fed = open_run(run)
    measured = log_stats(fed.devices.log, fed.train.user_keys)
    result = _figures(fed, run, measured, top)
    tables = [_parts_table(result), _comparison_table(result)]
    if top:
        rows = [(str(row["user"]), f"{row['entries']:,}", f"{row['bytes']:,}") for row in result["top"]]
        tables.append(show.table(["user", "entries", "bytes"], rows, title="The largest logs"))
    show.result(result, as_json, *tables)
    for count, what in ((measured.damaged, "entries are damaged"), (measured.full, "times a device's log was full")):
        if count and not as_json:
            show.notes.print(f"[yellow]{count:,} {what}.[/]")


def _figures(fed: Federation, run: Path, measured: LogStats, top: int) -> dict[str, Any]:
    """All figures as plain values; parts and the paper's logs in mean bytes per device."""
    log, table, users = fed.config.log, item_table_bytes(fed), fed.train.user_ids.tolist()
    times = Counter(user for round_ in range(1, fed.rounds + 1) for user in fed.cohort(round_))
    participations = np.array([times[user] for user in users], np.int64)  # the log may have dropped some of them
    paper = PaperLog.of(fed.model, fed.config.sampler, fed.train.counts, participations)
    settings = {
        "encoding": log.to_dict()["encoding"],
        "selection": log.selection,
        "alpha": log.share,
        "quota": log.quota,
    }
    largest = np.argsort(-measured.per_device, kind="stable")[:top].tolist()
    folder = run / f"trajectory-{fed.config.trajectory}" / "devices"
    return {
        "run": str(run),
        "rounds": fed.rounds,
        "devices": fed.train.n_users,
        "log": settings,
        "entries_per_device": _spread(measured.entries),
        "bytes_per_device": _spread(measured.per_device),
        "parts": {name: float(measured.of(name).mean()) for name in PLACES},
        "item_table_bytes": table,
        "share_of_item_table": float(measured.per_device.mean()) / table,
        "paper": {
            "alpha": PAPER_ALPHA,
            "beta": fed.config.sampler.beta,
            "negatives": fed.model.negatives,
            "rows": {"bytes": float(paper.rows.mean()), "share": float(paper.rows.mean()) / table},
            "with_dense": {"bytes": float(paper.with_dense.mean()), "share": float(paper.with_dense.mean()) / table},
        },
        "disk_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "damaged_entries": measured.damaged,
        "times_full": measured.full,
        "top": [
            {"user": users[at], "entries": int(measured.entries[at]), "bytes": int(measured.per_device[at])}
            for at in largest
        ],
    }


def _spread(values: NDArray[np.int64]) -> dict[str, float]:
    total, largest = int(values.sum()), int(values.max())
    return {"mean": float(values.mean()), "median": float(np.median(values)), "max": largest, "total": total}


def _parts_table(result: dict[str, Any]) -> Table:
    log, size, entries = result["log"], result["bytes_per_device"], result["entries_per_device"]
    kept = "every row" if log["alpha"] == 1 else f"{log['alpha']:.0%} of the rows by {log['selection']}"
    rows = [
        (LABELS[place], f"{value:,.1f}", f"{value / size['mean']:.1%}")
        for place, value in result["parts"].items()
        if value or place != "damaged"
    ]
    title = f"{result['devices']:,} devices, {result['rounds']} rounds, {log['encoding']}, {kept}"
    table = show.table(["part of a device's log", "bytes", "share"], rows, title=title)
    table.add_section()
    table.add_row("mean", f"{size['mean']:,.1f}", "100.0%")
    table.add_row("median", f"{size['median']:,.1f}", "")
    table.add_row("largest", f"{size['max']:,}", "")
    of_entries = f"mean {entries['mean']:.1f}, median {entries['median']:g}, at most {entries['max']:,}"
    table.caption = f"entries per device: {of_entries}"
    return table


def _comparison_table(result: dict[str, Any]) -> Table:
    paper, disk = result["paper"], result["disk_bytes"]
    formula = f"α = {paper['alpha']:g}, β = {paper['beta']:g}, N = {paper['negatives']}"
    caption = (
        f"the paper's: float32, α(1 + βN) · items · participations rows, {formula}\n"
        f"the logs of all devices on this disk: {in_bytes(disk)}"
    )
    sizes = [
        ("this log, everything counted", result["bytes_per_device"]["mean"], result["share_of_item_table"]),
        ("the paper's log, item rows only", *paper["rows"].values()),
        ("the paper's log with the MLP counted", *paper["with_dense"].values()),
        ("the item table itself", result["item_table_bytes"], 1.0),
    ]
    rows = [(label, in_bytes(size), f"{share:.2%}") for label, size, share in sizes]
    return show.table(["on a device", "bytes", "of the item table"], rows, caption=caption)
