"""Aggregation: checks on the updates of a cohort, and rules that combine them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedforget.models import GlobalParameters
from fedforget.models.parameters import Array
from fedforget.protocol import reasons
from fedforget.protocol.bounds import Bounds
from fedforget.protocol.updates import Total, Updates
from fedforget.runtime.compiled import exact, fast
from fedforget.runtime.components import Component, Registry

_REASONS = {
    1: reasons.UNKNOWN_ITEM,
    2: reasons.NOT_FINITE,
    3: reasons.REPEATED_ITEM,
    4: reasons.WRONG_COUNT,
    5: reasons.REPEATED_USER,
    6: reasons.TOO_LARGE,
}


@dataclass(frozen=True)
class Step:
    """The combined update of a round: the item table, and the other tensors that clients send."""

    items: Array
    dense: Array

    @property
    def finite(self) -> bool:
        """Whether it holds no NaN or infinity; then none of the updates does."""
        return bool(_zero_if_finite(self.items.reshape(-1)) + _zero_if_finite(self.dense) == 0)


def screen(
    updates: Updates,
    public: GlobalParameters,
    sent: int,
    *,
    numbers: bool = True,
    counts: bool = False,
    bounds: Bounds | None = None,
) -> dict[int | str, str]:
    """The users whose updates are rejected, with the reason.

    ``sent`` is how many numbers each client sends beside item rows. ``numbers=False`` skips the search for NaN and
    infinity, which reads every number. ``counts`` is whether the numbers of interactions are needed; ``bounds`` are
    those of the users' terms.
    """
    if not updates.fits(public.items.shape[1], sent):
        return dict.fromkeys(updates.users, reasons.WRONG_SHAPE)
    twice = {user for user, times in Counter(updates.users).items() if times > 1}
    verdicts = _screen(updates.ptr, updates.items, updates.rows, updates.dense, public.items.shape[0], numbers)
    if bounds is not None and (exceeded := bounds.exceeded(updates.ptr, updates.rows, updates.dense)) is not None:
        verdicts[exceeded & (verdicts == 0)] = 6
    if counts:
        verdicts[(updates.sizes < 1) | (updates.sizes > public.items.shape[0])] = 4
    verdicts[[user in twice for user in updates.users]] = 5
    return {user: _REASONS[verdict] for user, verdict in zip(updates.users, verdicts, strict=True) if verdict}


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
    """0 for a valid update, else the number of the reason."""
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


@dataclass(frozen=True)
class AggregationRule(Component):
    """Base class of aggregation rules.

    The base implementation adds up updates times the clients' ``weights`` and then scales each item row
    (``row_scale``). A rule of your own overrides one of these, or ``combine``.
    """

    #: Whether the step of an item row shrinks with the clients of the cohort that did not touch it.
    averages: ClassVar[bool] = True
    #: Whether it needs the number of interactions of each client (``Updates.sizes``), which is not sent otherwise.
    needs_counts: ClassVar[bool] = False
    #: Whether the sum of the updates is enough for it (``combine_total``), as secure aggregation demands.
    works_on_sums: ClassVar[bool] = False

    def weights(self, updates: Updates) -> NDArray[np.float64]:
        """The weight of each client; by default equal, adding up to 1."""
        return np.full(len(updates), 1 / max(len(updates), 1))

    def row_scale(self, touches: NDArray[np.int64], clients: int) -> NDArray[np.float64] | None:
        """A factor for each item row, from the number of clients that touched it; None for no scaling."""
        return None

    def combine(self, updates: Updates, public: GlobalParameters) -> Step:
        """The combined update of a cohort.

        Clients are added in the order of ``updates``, so that the result does not depend on who computed them.
        """
        weights = self.weights(updates).astype(np.float32)
        step = Step(np.zeros_like(public.items), np.zeros(updates.dense.shape[1], np.float32))
        touches = np.zeros(public.items.shape[0], np.int64)
        _accumulate(updates.ptr, updates.items, updates.rows, updates.dense, weights, step.items, step.dense, touches)
        return self._scaled(step, touches, len(updates))

    def combine_total(self, total: Total) -> Step:
        """The combined update of a cohort of which only the sum is known: every client has the same weight."""
        weight = np.float32(1 / max(len(total), 1))
        return self._scaled(Step(weight * total.items, weight * total.dense), total.touches, len(total))

    def _scaled(self, step: Step, touches: NDArray[np.int64], clients: int) -> Step:
        scale = self.row_scale(touches, clients)
        if scale is not None:
            step.items[:] *= scale.astype(np.float32)[:, None]
        return step


@dataclass(frozen=True)
class Mean(AggregationRule):
    """The mean over the cohort; an item row that a client did not touch counts as zero (the paper's rule)."""

    name: ClassVar[str] = "mean"
    works_on_sums: ClassVar[bool] = True


@dataclass(frozen=True)
class Touched(AggregationRule):
    """The mean of each item row over the clients that touched it; other tensors over the cohort."""

    name: ClassVar[str] = "touched"
    works_on_sums: ClassVar[bool] = True
    averages: ClassVar[bool] = False

    def row_scale(self, touches: NDArray[np.int64], clients: int) -> NDArray[np.float64]:
        return clients / np.maximum(touches, 1)


@dataclass(frozen=True)
class Weighted(AggregationRule):
    """The mean over the cohort, each client weighted by its number of interactions."""

    name: ClassVar[str] = "weighted"
    needs_counts: ClassVar[bool] = True

    def weights(self, updates: Updates) -> NDArray[np.float64]:
        return updates.sizes / max(float(updates.sizes.sum()), 1.0)


@dataclass(frozen=True)
class Root(AggregationRule):
    """The sum of each item row, divided by the square root of the number of clients that touched it.

    The step of a row does not shrink as the cohort grows. Other tensors are averaged over the cohort.
    """

    name: ClassVar[str] = "root"
    works_on_sums: ClassVar[bool] = True
    averages: ClassVar[bool] = False

    def row_scale(self, touches: NDArray[np.int64], clients: int) -> NDArray[np.float64]:
        return clients / np.sqrt(np.maximum(touches, 1))


AGGREGATIONS = Registry("aggregation", "fedforget.aggregations", AggregationRule, Mean, Touched, Weighted, Root)


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
