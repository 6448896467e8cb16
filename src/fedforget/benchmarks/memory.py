"""``fedforget bench memory``: what a simulation of many users holds in memory while its logs are on disk.

``python -m fedforget.benchmarks.memory USERS ROUNDS`` takes the measurements in a process of its own and prints JSON.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedforget.benchmarks import machine
from fedforget.data import synthetic
from fedforget.device.log.settings import Log
from fedforget.federation import Federation
from fedforget.models import MF
from fedforget.server.rounds import Protocol
from fedforget.server.unlearning import FRU

USERS = 100_000
ROUNDS = 20
FRACTION = 0.01
LEAVERS = 10
ITEMS = 2_000
MEAN_ITEMS = 30


def bench_memory(users: int = USERS, rounds: int = ROUNDS) -> dict[str, Any]:
    """The measurements, taken in a fresh process so that nothing else is in its memory."""
    command = [sys.executable, "-m", "fedforget.benchmarks.memory", str(users), str(rounds)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result | {"machine": machine.describe()}


def measure(users: int, rounds: int) -> dict[str, Any]:
    """Memory with the data loaded, after some rounds, after as many again, and after forgetting a few users.

    ``resident`` is held at that point, ``allocated`` the part of it that is no mapped file, ``peak`` the most that was
    held since the point before. What users add is bounded by the highest peak above what the program itself holds
    before it has any data. Rounds add nothing that lasts: entries and snapshots are on disk, and one round's at most
    are in memory. Only the mapped file of private parameters grows, until every user has taken part.
    """
    points = [{"after": "start", **_memory()}]
    data = synthetic(users=users, items=ITEMS, mean_items=MEAN_ITEMS, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        fed = Federation(data, MF(), path=Path(folder) / "run", protocol=Protocol(fraction=FRACTION), log=Log())
        points.append({"after": "load", **_memory()})
        fed.fit(rounds=rounds)
        points.append({"after": f"{rounds} rounds", **_memory()})
        fed.fit(more=rounds)
        points.append({"after": f"{2 * rounds} rounds", **_memory()})
        receipt = fed.forget(sorted(fed.cohort(1))[:LEAVERS], FRU())
        points.append({"after": f"forgetting {LEAVERS}", **_memory()})
        fed.close()
    highest = max(point["peak_bytes"] for point in points[1:])
    return {
        "users": users,
        "cohort": round(users * FRACTION),
        "rounds": rounds,
        "points": points,
        "allocated_by_later_rounds": points[3]["allocated_bytes"] - points[2]["allocated_bytes"],
        "rounds_replayed": receipt.rounds_replayed,
        "bytes_per_user": (highest - points[0]["resident_bytes"]) / users,
    }


def _memory() -> dict[str, Any]:
    """What is held now, and the most that was held since this was last asked (since the start, where Linux is not)."""
    peak = _status("VmHWM")
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held = machine.resident_bytes()
    return {"resident_bytes": held, "allocated_bytes": _status("RssAnon"), "peak_bytes": max(peak, held)}


def _status(name: str) -> int:
    """One of Linux's figures on this process; what it holds now, where there are none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        return machine.resident_bytes()


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
