"""``fedforget log``: what the devices' logs take, part by part, beside the paper's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.runs import Run, opened
from fedforget.device.compute import Compute
from fedforget.device.log.stats import PAPER_ALPHA, PLACES, LogStats, PaperLog, log_stats
from fedforget.errors import ConfigError
from fedforget.experiments.measures import item_table_bytes
from fedforget.experiments.plots import in_bytes
from fedforget.simulation.federation import Federation

#: What the places are called in a table.
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
    """Keep ``stats`` a command of its own, though it is the only one."""


@app.command()
def stats(
    run: Run,
    top: Annotated[int, typer.Option(help="Show so many of the devices with the largest logs.")] = 0,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show the bytes of log on a device, everything counted, beside the item table and the paper's log."""
    if top < 0:
        raise ConfigError(f"top is {top}.", "Give 0 or more.")
    fed, _ = opened(run, folder, Compute())
    measured = log_stats(fed.devices.log, fed.train.user_keys)
    result = _figures(fed, run, measured, top)
    if as_json:
        show.print_json(result)
        return
    show.out.print(_parts_table(result))
    show.out.print(_comparison_table(result))
    for count, what in ((measured.damaged, "entries are damaged"), (measured.full, "times a device's log was full")):
        if count:
            show.notes.print(f"[yellow]{count:,} {what}.[/]")
    if top:
        show.out.print(_top_table(result))


def _figures(fed: Federation, run: Path, measured: LogStats, top: int) -> dict[str, Any]:
    """Everything there is to say, as plain values; parts and the paper's logs in mean bytes a device."""
    log, table = fed.config.log, item_table_bytes(fed)
    paper = PaperLog.of(fed.model, fed.config.sampler, fed.train.counts, _participations(fed))
    settings = {
        "encoding": log.to_dict()["encoding"],
        "selection": log.selection,
        "alpha": log.share,
        "quota": log.quota,
    }
    largest = np.argsort(-measured.per_device, kind="stable")[:top].tolist()
    users = fed.train.user_ids.tolist()
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
        "disk_bytes": _disk_bytes(run / f"trajectory-{fed.config.trajectory}" / "devices"),
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


def _participations(fed: Federation) -> NDArray[np.int64]:
    """How often each user took part; the log may have dropped some of it."""
    times = Counter(user for round_ in range(1, fed.rounds + 1) for user in fed.cohort(round_))
    return np.array([times[user] for user in fed.train.user_ids.tolist()], np.int64)


def _disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _parts_table(result: dict[str, Any]) -> Table:
    log, size, entries = result["log"], result["bytes_per_device"], result["entries_per_device"]
    kept = "every row" if log["alpha"] == 1 else f"{log['alpha']:.0%} of the rows by {log['selection']}"
    table = Table(title=f"{result['devices']:,} devices, {result['rounds']} rounds, {log['encoding']}, {kept}")
    for name in ("of a device's log", "bytes", "share"):
        table.add_column(name, justify="left" if name.startswith("of") else "right")
    for place, value in result["parts"].items():
        if value or place != "damaged":
            table.add_row(LABELS[place], f"{value:,.1f}", f"{value / size['mean']:.1%}")
    table.add_section()
    table.add_row("mean", f"{size['mean']:,.1f}", "100.0%")
    table.add_row("median", f"{size['median']:,.1f}", "")
    table.add_row("largest", f"{size['max']:,}", "")
    table.caption = f"entries a device: {entries['mean']:.1f}, median {entries['median']:g}, at most {entries['max']:,}"
    return table


def _comparison_table(result: dict[str, Any]) -> Table:
    paper, disk = result["paper"], result["disk_bytes"]
    formula = f"α = {paper['alpha']:g}, β = {paper['beta']:g}, N = {paper['negatives']}"
    table = Table(
        caption=f"the paper's: float32, α(1 + βN) · items · participations rows, {formula}\n"
        f"the logs of all devices on this disk: {in_bytes(disk)}"
    )
    for name in ("a device keeps", "bytes", "of the item table"):
        table.add_column(name, justify="left" if name.startswith("a ") else "right")
    mean = result["bytes_per_device"]["mean"]
    for label, size, share in (
        ("this log, everything counted", mean, result["share_of_item_table"]),
        ("the paper's log, item rows only", *paper["rows"].values()),
        ("the paper's log with the MLP counted", *paper["with_dense"].values()),
        ("the item table itself", result["item_table_bytes"], 1.0),
    ):
        table.add_row(label, in_bytes(size), f"{share:.2%}")
    return table


def _top_table(result: dict[str, Any]) -> Table:
    table = Table(title="The largest logs")
    for name in ("user", "entries", "bytes"):
        table.add_column(name, justify="left" if name == "user" else "right")
    for row in result["top"]:
        table.add_row(str(row["user"]), f"{row['entries']:,}", f"{row['bytes']:,}")
    return table
