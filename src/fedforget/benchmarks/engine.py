"""``fedforget bench engine``: how fast a federated round is, against the plain loop and against the machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fedforget.benchmarks import machine
from fedforget.data import Interactions
from fedforget.device.compute import Compute
from fedforget.federation import Federation
from fedforget.models import IALS, NCF, Recommender, build_model

GROWTH_USERS = (1_000, 10_000, 100_000)
#: The seconds of a round below which what ran before it decides its time.
SHORT = 0.1
Say = Callable[[str], None]


def bench_engine(
    data: Interactions,
    models: Sequence[str],
    *,
    preset: str = "default",
    growth: bool = True,
    quick: bool = False,
    say: Say,
) -> dict[str, Any]:
    """Measure each model's round, the plain loop beside it, and how a round grows with the users."""
    train, _ = data.split()
    result: dict[str, Any] = {"models": {}, "preset": preset, "machine": machine.describe()}
    for name in models:
        say(f"{name}: fast rounds and the plain loop, side by side")
        result["models"][name] = bench_model(train, build_model(name), preset, quick=quick)
    if growth:
        say(f"growth: {', '.join(f'{n:,}' for n in GROWTH_USERS)} users at a cohort of 100")
        result["growth"] = bench_growth(rounds=20 if quick else 60)
    return result


def bench_model(train: Interactions, model: Recommender, preset: str = "default", *, quick: bool) -> dict[str, float]:
    """One model with the settings of a preset; fast rounds and the machine's peak take turns, and medians count.

    Measuring the peak empties the caches, so a short round is timed in the middle of a few. The plain loop runs the
    first rounds of the same run, once with torch on one thread and once on all; the faster of the two is compared with
    the fast engine on the same rounds.
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
    """The seconds of one more round, everything included."""
    begun = time.perf_counter()
    fed.fit(more=1)
    return time.perf_counter() - begun


def plain_seconds(train: Interactions, model: Recommender, preset: str, threads: int, rounds: int) -> float:
    """The seconds of the first rounds in the plain loop, with so many threads inside each torch operation."""
    fed = Federation(train, model, preset=preset, compute=Compute(trainer="plain", workers=1))
    torch.set_num_threads(threads)
    try:
        return sum(timed_round(fed) for _ in range(rounds))
    finally:
        torch.set_num_threads(1)


def useful_flops(model: Recommender, train: Interactions, fed: Federation) -> float:
    """The arithmetic that the last round's training needs: products of forward and backward pass, no optimiser.

    A product of the forward pass costs two more of the same size in the backward pass. For NCF the user's half of
    the first layer counts once a step, not once a sample. For iALS: half a matrix for each own item, its Cholesky
    factor for each user, and two products of the item table with a matrix.
    """
    cohort = fed.cohort(fed.rounds)
    positives = train.counts[[train.user_index(user) for user in cohort]]
    if isinstance(model, IALS):
        fitted = model.dim**2 * float(positives.sum()) + model.dim**3 / 3 * positives.size
        return fitted + 2 * 2 * train.n_items * model.dim**2
    samples = positives + np.array([fed.settings.sampler.count(model.negatives, int(n)) for n in positives])
    local = fed.settings.training
    steps = local.epochs * np.ceil(samples / local.batch).sum()
    seen = float(local.epochs * samples.sum())
    if isinstance(model, NCF):
        first, second, third = model.hidden
        per_sample = model.dim * first + first * second + second * third + third
        return 3 * 2 * (per_sample * seen + model.dim * first * float(steps))
    return 3 * 2 * model.dim * seen


def bench_growth(rounds: int) -> dict[str, Any]:
    """A round's time at a fixed cohort while users grow; each size in a process of its own, for its memory."""
    points = []
    for users in GROWTH_USERS:
        command = [sys.executable, "-m", "fedforget.benchmarks.growth", str(users), str(rounds)]
        points.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    seconds = [point["round_seconds"] for point in points]
    added = points[-1]["resident_bytes"] - points[0]["resident_bytes"]
    return {
        "users": list(GROWTH_USERS),
        "round_seconds": seconds,
        "ratio": max(seconds[1:]) / seconds[0],
        "bytes_per_user": added / (GROWTH_USERS[-1] - GROWTH_USERS[0]),
    }
