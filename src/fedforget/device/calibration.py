"""Calibration on the device: the length of the old update, the direction of the new one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.codec import Logged
from fedforget.device.plan import Plan
from fedforget.device.training import Trained
from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact, fast, inlined
from fedforget.runtime.workers import Places, Workers, next_place

#: Up to this many numbers are calibrated in less time than it takes to start another thread.
WORTH_SHARING = 2_000_000
NO_TENSORS = np.zeros(1, np.int64)


def logged_lengths(plan: Plan, logged: Logged, logged_plan: Plan, n_items: int) -> Array:
    """The logged length of every row of a plan; 0 if the log has none for its item."""
    if plan is logged_plan:
        return logged.lengths.copy()
    lengths = np.zeros(plan.items.size, np.float32)
    _look_up(plan.item_ptr, plan.items, logged_plan.item_ptr, logged_plan.items, logged.lengths, n_items, lengths)
    return lengths


@exact
def _look_up(ptr, items, log_ptr, log_items, log_lengths, n_items, out) -> None:  # type: ignore[no-untyped-def]
    length_of = np.zeros(n_items, np.float32)
    for c in range(ptr.size - 1):
        for i in range(log_ptr[c], log_ptr[c + 1]):
            length_of[log_items[i]] = log_lengths[i]
        for i in range(ptr[c], ptr[c + 1]):
            out[i] = length_of[items[i]]
        for i in range(log_ptr[c], log_ptr[c + 1]):
            length_of[log_items[i]] = 0


def calibrate(
    plan: Plan, trained: Trained, lengths: Array, dense_lengths: Array | None, layout: Layout, workers: Workers
) -> None:
    """Scale every row of the new updates to its length, in place, and every other tensor, if lengths are given for it.

    Rows and tensors that did not change have no direction: their lengths are set to 0 in both arrays.
    """
    bounds = NO_TENSORS if dense_lengths is None else layout.bounds
    dense_lengths = np.empty((len(plan), 0), np.float32) if dense_lengths is None else dense_lengths

    def run(order: Places, counter: Places) -> None:
        _calibrate(order, counter, plan.item_ptr, trained.rows, lengths, bounds, trained.dense, dense_lengths)

    size = trained.rows.size + (trained.dense.size if bounds.size > 1 else 0)
    workers.run(run, costs=np.diff(plan.item_ptr), worth_sharing=size > WORTH_SHARING)


@inlined
def set_row_length(rows: Array, i: int, start: int, stop: int, length: np.float32) -> np.float32:
    """Scale a part of a row to a length and return the length; a part of zeros does not change and has length 0."""
    total = np.float32(0)
    for j in range(start, stop):
        total += rows[i, j] * rows[i, j]
    norm = np.sqrt(total)
    if not 0 < norm < np.inf:
        return np.float32(0)
    factor = length / norm
    for j in range(start, stop):
        rows[i, j] *= factor
    return length


@fast
def _calibrate(  # type: ignore[no-untyped-def]
    order, counter, ptr, rows, lengths, bounds, dense, dense_lengths
) -> None:
    c = next_place(order, counter)
    while c >= 0:
        for i in range(ptr[c], ptr[c + 1]):
            lengths[i] = set_row_length(rows, i, 0, rows.shape[1], lengths[i])
        for t in range(bounds.size - 1):
            dense_lengths[c, t] = set_row_length(dense, c, bounds[t], bounds[t + 1], dense_lengths[c, t])
        c = next_place(order, counter)


def scale(
    items: NDArray[np.int32], trained: Trained, item_factors: Array, dense_factors: Array, layout: Layout
) -> None:
    """Scale every row by its item's factor and every other tensor by its own, in place, as the server did."""
    trained.rows[:] *= item_factors[items][:, None]
    for places, factor in zip(layout.places.values(), dense_factors.tolist(), strict=True):
        trained.dense[:, places] *= np.float32(factor)
