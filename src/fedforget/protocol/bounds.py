"""Bounds on updates: devices shorten what is longer, and the server rejects it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.compiled import fast

#: How much longer the other numbers of an update may be than an item row.
DENSE = 10.0
#: Rounding that a clipped update may have.
TOLERANCE = 1.001


@dataclass(frozen=True)
class Bounds:
    """The largest Euclidean norm of an item row in an update; that of its other numbers is ``DENSE`` times as large."""

    clip: float

    def shorten(self, rows: Array, dense: Array) -> None:
        """Shorten longer rows to the bound, in place."""
        for values, bound in ((rows, self.clip), (dense, DENSE * self.clip)):
            if values.size and not _largest(values) <= bound * bound:
                lengths = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1))
                longer = np.isfinite(lengths) & (lengths > bound)
                values[longer] *= (bound / lengths[longer]).astype(np.float32)[:, None]

    def exceeded(self, ptr: NDArray[np.int64], rows: Array, dense: Array) -> NDArray[np.bool_] | None:
        """The clients whose update has a longer row; None if there is none."""
        row_bound, dense_bound = TOLERANCE * self.clip, TOLERANCE * DENSE * self.clip
        if _largest(rows) <= row_bound * row_bound and _largest(dense) <= dense_bound * dense_bound:
            return None
        too_long = _exceed(rows, row_bound)
        clients = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
        exceeded = np.bincount(clients, weights=too_long, minlength=ptr.size - 1) > 0
        return np.asarray(exceeded | _exceed(dense, dense_bound))


def _exceed(values: Array, bound: float) -> NDArray[np.bool_]:
    """Which rows are longer than a bound; those with NaN or infinity are not among them."""
    squares = np.square(values, dtype=np.float64).sum(axis=1)
    return np.asarray(np.isfinite(squares) & (squares > bound * bound))


@fast
def _largest(values: Array) -> np.float32:
    """The largest squared norm of a row."""
    largest = np.float32(0)
    for i in range(values.shape[0]):
        total = np.float32(0)
        for j in range(values.shape[1]):
            total += values[i, j] * values[i, j]
        if not total <= largest:  # also if it is NaN
            largest = total
    return largest
