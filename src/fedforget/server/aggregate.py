"""Aggregation: from the updates of a cohort to the step of the public parameters, and checks on what arrives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.compiled import exact, fast
from fedforget.errors import one_of
from fedforget.models import Public
from fedforget.models.parameters import Array
from fedforget.updates import Updates

#: ``mean``: over the cohort, an item row that a client did not touch counting as zero (the paper's).
#: ``touched``: each item row over the clients that touched it; other tensors over the cohort.
#: ``weighted``: as ``mean``, each client weighing as much as it has interactions.
#: ``root``: each item row's sum over the clients that touched it, divided by the square root of their number, so that
#: its step does not shrink as the cohort grows; other tensors over the cohort.
RULES = ["mean", "touched", "weighted", "root"]

MISSHAPEN = "the update does not have the shape of the model"
REASONS = {
    1: "the update names an item that does not exist",
    2: "the update holds NaN or infinity",
    3: "the update names an item twice",
    4: "the number of interactions it reports cannot be",
    5: "it answered twice",
}


@dataclass(frozen=True)
class Step:
    """The combined update of a round: to the item table, and to whatever else clients send."""

    items: Array
    dense: Array

    @property
    def finite(self) -> bool:
        """Whether every number in it is one: if an update held NaN or infinity, this is where it ended up."""
        return bool(_zero_if_finite(self.items.reshape(-1)) + _zero_if_finite(self.dense) == 0)


def screen(updates: Updates, public: Public, sent: int, *, numbers: bool = True) -> dict[int | str, str]:
    """The users whose updates cannot be used, with the reason: nothing that arrives is trusted.

    ``sent`` is how many numbers each client sends beside item rows. Without ``numbers`` nothing is said about NaN and
    infinity: looking at every number takes a while.
    """
    if not updates.fits(public.items.shape[1], sent):
        return dict.fromkeys(updates.users, MISSHAPEN)
    twice = {user for user, times in Counter(updates.users).items() if times > 1}
    verdicts = _screen(updates.ptr, updates.items, updates.rows, updates.dense, public.items.shape[0], numbers)
    verdicts[(updates.sizes < 1) | (updates.sizes > public.items.shape[0])] = 4
    verdicts[[user in twice for user in updates.users]] = 5
    return {user: REASONS[verdict] for user, verdict in zip(updates.users, verdicts, strict=True) if verdict}


@fast
def _zero_if_finite(values: Array) -> np.float32:
    """The sum of 0 · x, which is 0 for finite x and NaN otherwise: one pass without a branch."""
    total = np.float32(0)
    for i in range(values.size):
        total += values[i] * np.float32(0)
    return total


@exact
def _screen(
    ptr: NDArray[np.int64], items: NDArray[np.int32], rows: Array, dense: Array, n_items: int, numbers: bool
) -> NDArray[np.uint8]:
    """0 for a sound update, else the number of the reason."""
    verdicts = np.zeros(ptr.size - 1, np.uint8)
    seen = np.full(n_items, -1, np.int32)
    for c in range(ptr.size - 1):
        for i in range(ptr[c], ptr[c + 1]):
            if items[i] < 0 or items[i] >= n_items:
                verdicts[c] = 1
                break
            if seen[items[i]] == c:
                verdicts[c] = 3
                break
            seen[items[i]] = c
        if numbers and verdicts[c] == 0:
            check = _zero_if_finite(rows[ptr[c] : ptr[c + 1]].reshape(-1)) + _zero_if_finite(dense[c])
            verdicts[c] = 2 if check != 0 else 0
    return verdicts


def aggregate(updates: Updates, public: Public, rule: str = "mean") -> Step:
    """Combine the updates of a cohort, client after client, so that the result does not depend on who ran them."""
    if rule not in RULES:
        raise one_of("aggregation", rule, RULES)
    sizes = updates.sizes.astype(np.float64) if rule == "weighted" else np.ones(len(updates))
    weights = (sizes / max(sizes.sum(), 1.0)).astype(np.float32)
    step = Step(np.zeros_like(public.items), np.zeros(updates.dense.shape[1], np.float32))
    touches = np.zeros(public.items.shape[0], np.int64)
    _accumulate(updates.ptr, updates.items, updates.rows, updates.dense, weights, step.items, step.dense, touches)
    if rule == "touched":
        step.items[:] *= (len(updates) / np.maximum(touches, 1)).astype(np.float32)[:, None]
    elif rule == "root":
        step.items[:] *= (len(updates) / np.sqrt(np.maximum(touches, 1))).astype(np.float32)[:, None]
    return step


@exact
def _accumulate(  # type: ignore[no-untyped-def]
    ptr, items, rows, dense, weights, out_items, out_dense, touches
) -> None:
    for c in range(weights.size):
        weight = weights[c]
        for i in range(ptr[c], ptr[c + 1]):
            target = out_items[items[i]]
            touches[items[i]] += 1
            for j in range(target.size):
                target[j] += weight * rows[i, j]
        for j in range(out_dense.size):
            out_dense[j] += weight * dense[c, j]
