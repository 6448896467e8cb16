"""Ragged arrays of bytes: one piece of any length for each client, concatenated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedforget.runtime.compiled import exact

Ptr = NDArray[np.int64]
#: Client c's piece is ``bytes[ptr[c]:ptr[c + 1]]``.
Part = tuple[Ptr, NDArray[np.uint8]]


def offsets(sizes: ArrayLike) -> Ptr:
    """The offsets of concatenated pieces of these sizes, with the end of the last piece."""
    ptr = np.zeros(np.size(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ptr[1:])
    return ptr


def even(matrix: NDArray[np.uint8]) -> Part:
    """Pieces of equal length: the rows of a matrix."""
    return np.arange(matrix.shape[0] + 1, dtype=np.int64) * matrix.shape[1], np.ascontiguousarray(matrix).reshape(-1)


def nothing(n: int) -> Part:
    """An empty piece for each of n clients."""
    return np.zeros(n + 1, np.int64), np.empty(0, np.uint8)


def woven(parts: Sequence[Part]) -> Part:
    """Concatenate each client's pieces of several parts."""
    ptr = np.sum([part_ptr for part_ptr, _ in parts], axis=0)
    data = np.empty(ptr[-1], np.uint8)
    at = ptr[:-1].copy()
    for part_ptr, values in parts:
        _place(part_ptr, values, at, data)
    return ptr, data


@exact
def _place(ptr: Ptr, values: NDArray[np.uint8], at: Ptr, out: NDArray[np.uint8]) -> None:
    for c in range(at.size):
        size = ptr[c + 1] - ptr[c]
        out[at[c] : at[c] + size] = values[ptr[c] : ptr[c + 1]]
        at[c] += size


def cut(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Part:
    """Cut out the pieces that begin at ``starts`` and have these sizes."""
    ptr = offsets(sizes)
    out = np.empty(ptr[-1], np.uint8)
    _cut(data, starts, ptr, out)
    return ptr, out


@exact
def _cut(data: NDArray[np.uint8], starts: Ptr, ptr: Ptr, out: NDArray[np.uint8]) -> None:
    for c in range(starts.size):
        size = ptr[c + 1] - ptr[c]
        out[ptr[c] : ptr[c + 1]] = data[starts[c] : starts[c] + size]
