"""``fedforget bench engine`` and ``bench memory``: speed of a federated round, and memory with many users.

``python -m fedforget.experiments.benchmark_engine growth|memory USERS ROUNDS`` prints one measurement as JSON.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedforget.data import Interactions, synthetic
from fedforget.device.compute import Compute
from fedforget.experiments import machine
from fedforget.models import IALS, MF, MODELS, NCF, LightGCN, Recommender
from fedforget.protocol.log import Log
from fedforget.server.server_config import ServerConfig
from fedforget.server.unlearning import FRU
from fedforget.simulation.federation import Federation

GROWTH_USERS = (1_000, 10_000, 100_000)
COHORT, ITEMS, MEAN_ITEMS = 100, 2_000, 30
#: Users, with a new item each, that are added to a federation at once.
ADDED = 100
#: Cohort and number of forgotten users of the memory benchmark.
FRACTION, FORGOTTEN = 0.01, 10
#: Rounds below this many seconds are timed after two untimed rounds, since the peak measurement empties the caches.
SHORT = 0.1


def bench_engine(
    data: Interactions,
    models: Sequence[str],
    *,
    preset: str = "default",
    growth: bool = True,
    quick: bool = False,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure a round of each model, and how a round grows with the number of users."""
    train, _ = data.split()
    result: dict[str, Any] = {"models": {}, "preset": preset, "machine": machine.describe()}
    for name in models:
        say(f"{name}: rounds and the plain loop")
        result["models"][name] = bench_model(train, MODELS.build(name), preset, quick=quick)
    if growth:
        say(f"growth: {', '.join(f'{n:,}' for n in GROWTH_USERS)} users with a cohort of {COHORT}")
        result["growth"] = bench_growth(rounds=20 if quick else 60)
    return result


def bench_model(train: Interactions, model: Recommender, preset: str = "default", *, quick: bool) -> dict[str, float]:
    """Median time of a round, and the speed-up over the plain loop on the same rounds.

    The plain loop is run with one torch thread and with all; the faster one counts.
    """
    Federation(train, model, preset=preset).fit(rounds=1)  # compiles
    fast = Federation(train, model, preset=preset)
    cores = fast.devices.workers.count
    compared = 1 if quick else 2
    first = [timed_round(fast) for _ in range(compared)]
    seconds, rates, peaks = [], [], []
    for _ in range(4 if quick else 12):
        peaks.append(machine.peak_gflops(cores))
        if first[-1] < SHORT:
            fast.fit(more=2)
        seconds.append(timed_round(fast))
        rates.append(useful_flops(model, train, fast) / seconds[-1] / 1e9)
    plain = min(plain_seconds(train, model, preset, threads, compared) for threads in ({1} if quick else {1, cores}))
    row = {
        "round_seconds": statistics.median(seconds),
        "plain_loop_round_seconds": plain / compared,
        "speedup": plain / sum(first),
        "gflops": statistics.median(rates),
        "peak_gflops": statistics.median(peaks),
    }
    return row | {"utilization": row["gflops"] / row["peak_gflops"]}


def timed_round(fed: Federation) -> float:
    """The seconds of one more round."""
    begun = time.perf_counter()
    fed.fit(more=1)
    return time.perf_counter() - begun


def plain_seconds(train: Interactions, model: Recommender, preset: str, threads: int, rounds: int) -> float:
    """The seconds of the first rounds in the plain loop."""
    fed = Federation(train, model, preset=preset, compute=Compute(trainer="plain", workers=1))
    import torch

    torch.set_num_threads(threads)
    try:
        return sum(timed_round(fed) for _ in range(rounds))
    finally:
        torch.set_num_threads(1)


def useful_flops(model: Recommender, train: Interactions, fed: Federation) -> float:
    """Floating-point operations of the matrix products in the last round's training.

    The backward pass costs twice the forward pass. For NCF the user's half of the first layer counts once per step.
    For iALS: half a matrix per item, a Cholesky factor per user, and two products of the item table with a matrix.
    """
    cohort = fed.cohort(fed.rounds)
    positives = train.counts[[train.user_index(user) for user in cohort]]
    if isinstance(model, IALS):
        fitted = model.dim**2 * float(positives.sum()) + model.dim**3 / 3 * positives.size
        return fitted + 2 * 2 * train.n_items * model.dim**2
    samples = positives + fed.config.sampler.count(model.negatives, positives)
    local = fed.config.training
    steps = local.epochs * np.ceil(samples / local.batch).sum()
    seen = float(local.epochs * samples.sum())
    if isinstance(model, NCF):
        first, second, third = model.hidden
        per_sample = model.dim * first + first * second + second * third + third
        return 3 * 2 * (per_sample * seen + model.dim * first * float(steps))
    return 3 * 2 * model.dim * seen


def bench_growth(rounds: int) -> dict[str, Any]:
    """The time of a round with a fixed cohort as the number of users grows."""
    points = [_in_new_process("growth", users, rounds) for users in GROWTH_USERS]
    seconds = [point["round_seconds"] for point in points]
    added = points[-1]["resident_bytes"] - points[0]["resident_bytes"]
    return {
        "users": list(GROWTH_USERS),
        "round_seconds": seconds,
        "ratio": max(seconds[1:]) / seconds[0],
        "add_seconds": [point["add_seconds"] for point in points],
        "recommend_all_seconds": [point["recommend_all_seconds"] for point in points],
        "bytes_per_user": added / (GROWTH_USERS[-1] - GROWTH_USERS[0]),
    }


def measure_growth(users: int, rounds: int) -> dict[str, Any]:
    """The median seconds of a round with a cohort of 100, and the memory held after it.

    Also the median seconds of adding ``ADDED`` users with a new item each, and those of recommending to all users.
    """
    data = synthetic(users=users, items=ITEMS, mean_items=MEAN_ITEMS, seed=0)
    fed = Federation(data, LightGCN(), server=ServerConfig(fraction=COHORT / users, snapshot_every=1_000_000))
    fed.fit(rounds=3)
    seconds = [timed_round(fed) for _ in range(rounds)]
    gc.collect()
    resident = machine.resident_bytes()
    added = [_timed_addition(fed, number) for number in range(6)][1:]  # the first makes room for more
    started = time.perf_counter()
    fed.recommend_all(10)
    return {
        "round_seconds": statistics.median(seconds),
        "resident_bytes": resident,
        "add_seconds": statistics.median(added),
        "recommend_all_seconds": time.perf_counter() - started,
    }


def _timed_addition(fed: Federation, number: int) -> float:
    users = np.repeat(np.arange(ADDED) + (1 + number) * 10**9, MEAN_ITEMS)
    items = np.where(np.arange(users.size) % MEAN_ITEMS, np.arange(users.size) % ITEMS, users)
    more = Interactions.from_pairs(users, items)
    started = time.perf_counter()
    fed.add(more)
    return time.perf_counter() - started


def bench_memory(users: int, rounds: int) -> dict[str, Any]:
    """Memory of a simulation with logs on disk."""
    return _in_new_process("memory", users, rounds) | {"machine": machine.describe()}


def measure_memory(users: int, rounds: int) -> dict[str, Any]:
    """Memory with the data loaded, after some rounds, after as many again, and after forgetting a few users.

    ``resident`` is held at that point, ``allocated`` excludes mapped files, ``peak`` is the maximum since the point
    before. ``bytes_per_user`` is the highest peak above the memory of the program without data, per user.
    """
    points = [{"after": "start", **machine.memory()}]
    data = synthetic(users=users, items=ITEMS, mean_items=MEAN_ITEMS, seed=0)
    with TemporaryDirectory() as folder:
        fed = Federation(data, MF(), path=Path(folder) / "run", server=ServerConfig(fraction=FRACTION), log=Log())
        points.append({"after": "load", **machine.memory()})
        for done in (rounds, 2 * rounds):
            fed.fit(rounds=done)
            points.append({"after": f"{done} rounds", **machine.memory()})
        receipt = fed.forget(sorted(fed.cohort(1))[:FORGOTTEN], FRU())
        points.append({"after": f"forgetting {FORGOTTEN}", **machine.memory()})
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


MEASUREMENTS = {"growth": measure_growth, "memory": measure_memory}


def _in_new_process(name: str, users: int, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "fedforget.experiments.benchmark_engine", name, str(users), str(rounds)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


if __name__ == "__main__":
    print(json.dumps(MEASUREMENTS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))))
