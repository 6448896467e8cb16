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
from fedforget.device.devices import Compute
from fedforget.federation import Federation
from fedforget.models import NCF, Recommender, build_model

GROWTH_USERS = (1_000, 10_000, 100_000)
Say = Callable[[str], None]


def bench_engine(
    data: Interactions, models: Sequence[str], *, growth: bool = True, quick: bool = False, say: Say
) -> dict[str, Any]:
    """Measure each model's round, the plain loop beside it, and how a round grows with the users."""
    train, _ = data.split()
    result: dict[str, Any] = {"models": {}, "machine": machine.describe()}
    for name in models:
        say(f"{name}: fast rounds and the plain loop, side by side")
        result["models"][name] = bench_model(train, build_model(name), quick=quick)
    if growth:
        say(f"growth: {', '.join(f'{n:,}' for n in GROWTH_USERS)} users at a cohort of 100")
        result["growth"] = bench_growth(rounds=20 if quick else 60)
    return result


def bench_model(train: Interactions, model: Recommender, *, quick: bool) -> dict[str, float]:
    """One model at the paper's settings. Fast rounds, plain rounds and the peak take turns; medians count."""
    fast = Federation(train, model)
    plain = Federation(train, model, compute=Compute(trainer="plain", workers=1))
    fast.fit(rounds=1)  # compiles
    cores = fast.devices.workers.count
    fast_seconds: list[float] = []
    plain_seconds: list[float] = []
    rates, peaks = [], []
    for _ in range(1 if quick else 3):
        peaks.append(machine.peak_gflops(cores))
        for _ in range(2 if quick else 4):
            seconds = timed_round(fast)
            fast_seconds.append(seconds)
            rates.append(useful_flops(model, train, fast) / seconds / 1e9)
        if len(plain_seconds) < 2:
            plain_seconds.append(_plain_round(plain, threads=(1, cores)[len(plain_seconds) % 2]))
        peaks.append(machine.peak_gflops(cores))
    torch.set_num_threads(1)
    row = {
        "round_seconds": statistics.median(fast_seconds),
        "plain_loop_round_seconds": min(plain_seconds),
        "speedup": min(plain_seconds) / statistics.median(fast_seconds),
        "gflops": statistics.median(rates),
        "peak_gflops": statistics.median(peaks),
    }
    return row | {"utilization": row["gflops"] / row["peak_gflops"]}


def timed_round(fed: Federation) -> float:
    """The seconds of one more round, everything included."""
    begun = time.perf_counter()
    fed.fit(more=1)
    return time.perf_counter() - begun


def _plain_round(fed: Federation, threads: int) -> float:
    torch.set_num_threads(threads)
    return timed_round(fed)


def useful_flops(model: Recommender, train: Interactions, fed: Federation) -> float:
    """The arithmetic that the last round's training needs: products of forward and backward pass, no optimiser.

    A product of the forward pass costs two more of the same size in the backward pass. For NCF the user's half of
    the first layer counts once a step, not once a sample.
    """
    cohort = fed.last_cohort()
    positives = train.counts[[train.user_index(user) for user in cohort]]
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
