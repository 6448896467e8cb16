"""Lengths of updates: of every item row, and of every other tensor as a whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import fast, inlined


@inlined
def norm(values: Array) -> np.float32:
    """The L2 norm of a flat vector."""
    total = np.float32(0)
    for i in range(values.size):
        total += values[i] * values[i]
    return np.float32(np.sqrt(total))


@fast
def row_lengths(rows: Array) -> Array:
    """The L2 norm of every row."""
    out = np.empty(rows.shape[0], np.float32)
    for i in range(rows.shape[0]):
        out[i] = norm(rows[i])
    return out


def tensor_lengths(dense: Array, layout: Layout) -> Array:
    """The L2 norm of every tensor of each client's dense update, (C, tensors)."""
    return _tensor_lengths(np.ascontiguousarray(dense), layout.bounds)


@fast
def _tensor_lengths(dense: Array, bounds: NDArray[np.int64]) -> Array:
    out = np.empty((dense.shape[0], bounds.size - 1), np.float32)
    for c in range(dense.shape[0]):
        for tensor in range(bounds.size - 1):
            out[c, tensor] = norm(dense[c, bounds[tensor] : bounds[tensor + 1]])
    return out
