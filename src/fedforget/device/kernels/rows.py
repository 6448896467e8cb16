"""The rows of a client's item table: gathered for a batch and stepped along its gradients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.adam import adam, adam_idle
from fedforget.device.kernels.arithmetic import add_scaled
from fedforget.device.kernels.matrix import padded_width, transpose
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact

#: The item table and its two moments, each flat.
Table = tuple[Array, Array, Array]

_ONE = np.float32(1)


@exact
def take_rows(public: Array, used: NDArray[np.int32], table: Array) -> None:
    """Copy the rows that a client uses into its own table."""
    for i in range(used.size):
        row = np.uint64(used[i])  # unsigned: a check for negative indices would prevent vectorisation
        for j in range(table.shape[1]):
            table[i, j] = public[row, j]


@exact
def row_changes(table: Array, public: Array, used: NDArray[np.int32], out: Array) -> None:
    """The changes of a client's rows by training."""
    for i in range(used.size):
        row = np.uint64(used[i])
        for j in range(table.shape[1]):
            out[i, j] = table[i, j] - public[row, j]


@exact
def gather(table: Array, rows: NDArray[np.int32], turned: Array, out: Array) -> None:
    """The item vectors of a batch, one sample per column; ``turned`` is scratch space."""
    dim, width = table.shape[1], out.shape[0]
    samples = turned[: padded_width(rows.size) * width].reshape(padded_width(rows.size), width)
    for i in range(rows.size):
        for j in range(dim):
            samples[i, j] = table[rows[i], j]
    transpose(samples, out, samples.shape[0], width)


@exact
def catch_up(
    table: Table, dim: int, rows: NDArray[np.int32], done: NDArray[np.int64], until: int, scales: Array
) -> None:
    """Apply the steps up to ``until`` to these rows of the item table; ``done`` is the step that each row is at."""
    w, m, v = table
    for row in rows:
        if 0 < done[row] < until:
            adam_idle(w, m, v, row * dim, (row + 1) * dim, done[row], until, scales)
            done[row] = until


@exact
def step_rows(
    table: Table,
    dim: int,
    rows: NDArray[np.int32],
    g: Array,
    turned: Array,
    done: NDArray[np.int64],
    first: NDArray[np.int64],
    step: int,
    length: np.float32,
    root: np.float32,
) -> None:
    """Step the rows of a batch along their gradients, which have one sample per column.

    A row that several samples share steps once, along the sum. ``turned`` and ``first`` are scratch space.
    """
    w, m, v = table
    width = g.shape[0]
    samples = turned[: padded_width(rows.size) * width].reshape(padded_width(rows.size), width)
    transpose(g, samples, width, samples.shape[0])
    for i in range(rows.size):
        if done[rows[i]] == step:
            add_scaled(samples[first[rows[i]], :dim], _ONE, samples[i, :dim])
        else:
            done[rows[i]] = step
            first[rows[i]] = i
    for i in range(rows.size):
        if first[rows[i]] == i:
            adam(w, turned, m, v, rows[i] * dim, (rows[i] + 1) * dim, i * width, length, root)
