"""``fedforget bench secure``: what secure aggregation costs devices, server and network, against plain updates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from fedforget.data import Interactions
from fedforget.device.masked import contribute, reveal
from fedforget.experiments import machine
from fedforget.experiments.benchmark_network import bench_messages, erase
from fedforget.protocol import masking
from fedforget.protocol.bounds import Bounds
from fedforget.protocol.fixed_point import SumFormat
from fedforget.protocol.masking import Contribution, KeyPair, RevealOrder, ring_of
from fedforget.protocol.updates import Updates
from fedforget.server.unlearning import FRU

Say = Callable[[str], None]
#: Rows in the update of the device that is measured: own items and negatives of a median user of MovieLens-100k.
ROWS = 100
#: Users on the network: enough to forget one with the smallest sums.
USERS = 9
#: Devices whose costs are measured; the median is shown.
MEASURED = 5


def bench_secure(cohorts: list[int], items: list[int], say: Say, dim: int = 64) -> dict[str, Any]:
    """Bytes and seconds of one device and one sum, for sizes of the cohort and of the catalogue."""
    rows = []
    for n_items in items:
        for cohort in cohorts:
            say(f"{cohort:,} devices, {n_items:,} items")
            rows.append(_measure(cohort, n_items, dim))
    return {"rows": rows, "dim": dim, "update_rows": ROWS, "machine": machine.describe()}


def _measure(cohort: int, n_items: int, dim: int) -> dict[str, float]:
    """The costs of a device in a cohort. Only it and its neighbours contribute; the others have keys."""
    pairs = [KeyPair.new() for _ in range(cohort)]
    context, keys = bytes(masking.KEY), tuple(pair.public for pair in pairs)
    ring = ring_of(context, keys)
    by_key = {pair.public: pair for pair in pairs}
    sums = SumFormat(n_items, dim, 0, Bounds(20.0), cohort)
    update = _update(n_items, dim)
    encode, mask, unmask, server = [], [], [], []
    contributions: dict[bytes, Contribution] = {}
    for key in keys[: min(MEASURED, cohort)]:
        own = by_key[key]
        start = time.perf_counter()
        words = np.zeros(sums.size, np.uint32)
        sums.encode(update, np.zeros(1, np.uint64), 1, 0, words)
        encode.append(time.perf_counter() - start)
        start = time.perf_counter()
        contributions[key] = contribute(own, context, ring_of(context, keys), words)
        mask.append(time.perf_counter() - start)
    key = keys[0]
    neighbours = ring.neighbours(key)
    for other in neighbours:
        if other not in contributions:
            contributions[other] = contribute(by_key[other], context, ring, np.zeros(sums.size, np.uint32))
    shares = [contributions[other].shares[ring.neighbours(other).index(key)] for other in neighbours]
    order = RevealOrder("user", 1, context, cohort, tuple(shares))
    total, first = np.zeros(sums.size, np.uint32), contributions[key]
    parts = list(enumerate(masking.split(by_key[key].self_seed(context), len(neighbours)), start=1))
    needed = masking.threshold(len(neighbours))
    for _ in range(MEASURED):
        start = time.perf_counter()
        reveal(by_key[key], ring.around(key), order)
        unmask.append(time.perf_counter() - start)
        start = time.perf_counter()
        total += first.words
        seed = masking.join(parts[:needed])
        assert seed is not None
        masking.add_mask(total, seed, -1)
        server.append(time.perf_counter() - start)
    up = first.words.nbytes + sum(len(part) for part in (*first.shares, *first.checks))
    return {
        "cohort": cohort,
        "items": n_items,
        "neighbours": len(neighbours),
        "device_seconds": median(encode) + median(mask) + median(unmask),
        "first_message_seconds": median(encode) + median(mask),
        "second_message_seconds": median(unmask),
        "server_seconds_per_device": median(server),
        "bytes_up": up + len(neighbours) * masking.SHARE,
        "bytes_down_extra": cohort * masking.KEY + sum(len(share) for share in shares),
        "plain_bytes_up": update.nbytes,
    }


def _update(n_items: int, dim: int) -> Updates:
    rng, rows = np.random.default_rng(0), min(ROWS, n_items)
    items = np.sort(rng.choice(n_items, rows, replace=False)).astype(np.int32)
    return replace(
        Updates.none(dim),
        users=["user"],
        ptr=np.array([0, rows], np.int64),
        items=items,
        rows=rng.normal(0, 0.1, (rows, dim)).astype(np.float32),
        dense=np.empty((1, 0), np.float32),
        sizes=np.zeros(1, np.int64),
        losses=np.zeros(1, np.float32),
    )


def bench_secure_network(data: Interactions, model: str, devices: int, rounds: int, say: Say) -> dict[str, Any]:
    """Seconds of a round, and of forgetting a user of the first round by FRU, on Flower, plain and secure."""
    bench_messages(data, model, users=2)  # compiles
    result: dict[str, Any] = {"model": model, "devices": devices, "rounds": rounds, "machine": machine.describe()}
    for name, secure in (("plain", False), ("secure", True)):
        say(f"{name}: {rounds} rounds on {devices} nodes, then forgetting one user")
        trained, erasures = erase(
            data, model, devices, rounds, {"fru": FRU()}, lambda line: None, secure=secure, users=USERS
        )
        receipt, _ = erasures["fru"]
        result[name] = {
            "round_seconds": median(trained[1:]),
            "erasure_seconds": receipt.seconds,
            "communication_rounds": receipt.communication_rounds,
        }
    result["round_ratio"] = result["secure"]["round_seconds"] / result["plain"]["round_seconds"]
    result["erasure_ratio"] = result["secure"]["erasure_seconds"] / result["plain"]["erasure_seconds"]
    return result
