"""``fedforget bench service``: the erasure service under load, and killed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.serve import require_service
from fedforget.errors import ConfigError


def service(
    rate: Annotated[float, typer.Option(help="Status reads a second.")] = 200.0,
    seconds: Annotated[float, typer.Option(help="Seconds of reading.")] = 60.0,
    queued: Annotated[int, typer.Option(help="Requests that are made at once.")] = 1000,
    users: Annotated[int, typer.Option("--num-users", help="Number of simulated users.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Measure the erasure service: reads while an erasure replays, then many requests at once with kills among them."""
    require_service()
    if rate <= 0 or seconds <= 0 or queued < 10:
        raise ConfigError(
            f"rate is {rate:g}, seconds is {seconds:g}, queued is {queued}.", "Give more than 0, and 10 requests."
        )
    from fedforget.experiments.benchmark_service import bench_service

    show.tell_if_compiling()
    result = bench_service(rate, seconds, queued, users, lambda line: show.notes.print(line, markup=False))
    show.result(result, as_json, _reads_table(result["reads"]), _queue_table(result["queue"]))


def _reads_table(reads: dict[str, Any]) -> Any:
    columns = ["milliseconds", "p50", "p95", "p99", "max"]
    kinds = {
        "since due": "latency",
        "since due, while replaying": "latency_while_replaying",
        "since sent": "since_sent",
    }
    rows = [
        (label, *(f"{1000 * reads[kind][point]:.1f}" if reads[kind] else "–" for point in columns[1:]))
        for label, kind in kinds.items()
    ]
    errors = sum(reads["errors"].values())
    title = f"{reads['achieved_rate']:.1f} reads a second for {reads['seconds']:g} s, {errors} errors"
    caption = f"a replay ran {reads['replayed_share']:.0%} of the time, {reads['erasures']} erasures"
    return show.table(columns, rows, title=title, caption=caption)


def _queue_table(queue: dict[str, Any]) -> Any:
    names = {
        "answered before the first kill": "answered_before_kill",
        "answered later, repeats included": "repeated",
        "refused": "refused",
        "lost": "lost",
        "stored twice": "stored_twice",
        "completed": "completed",
        "never carried out": "never_carried_out",
        "carried out twice": "carried_out_twice",
        "members forgotten": "members_forgotten",
        "requests a second": "posts_a_second",
        "seconds until all are completed": "seconds_to_complete",
    }
    rows = [(label, f"{queue[name]:,.0f}") for label, name in names.items()]
    verified = "verified" if queue["verified"] else "NOT verified"
    title = f"{queue['requests']:,} requests at once, service and worker killed twice"
    return show.table(["", ""], rows, title=title, caption=f"signed receipts {verified}")
