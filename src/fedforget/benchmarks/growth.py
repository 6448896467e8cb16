"""One point of the growth benchmark: ``python -m fedforget.benchmarks.growth USERS ROUNDS`` prints JSON."""

from __future__ import annotations

import gc
import json
import statistics
import sys

from fedforget.benchmarks import machine
from fedforget.data import synthetic
from fedforget.federation import Federation
from fedforget.models import LightGCN
from fedforget.server.rounds import Protocol

COHORT = 100
ITEMS = 2_000
MEAN_ITEMS = 30


def measure(users: int, rounds: int) -> dict[str, float]:
    """The mean seconds of a round with 100 of so many users, and the memory held after them."""
    from fedforget.benchmarks.engine import timed_round

    data = synthetic(users=users, items=ITEMS, mean_items=MEAN_ITEMS, seed=0)
    fed = Federation(data, LightGCN(), protocol=Protocol(fraction=COHORT / users, snapshot_every=1_000_000))
    fed.fit(rounds=3)
    seconds = [timed_round(fed) for _ in range(rounds)]
    gc.collect()
    return {"round_seconds": statistics.median(seconds), "resident_bytes": machine.resident_bytes()}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
