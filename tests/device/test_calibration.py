"""Calibration on the device: the length of the old update, the direction of the fresh one, and never a NaN."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedforget.device.calibration import calibrate, logged_lengths, scale
from fedforget.device.plan import Plan
from fedforget.device.training import Trained
from fedforget.runtime.workers import Workers
from tests.device.made_logs import DIM, LAYOUT, PRIVATE, logged_of, numbers, tensors

LENGTHS = st.floats(0, 4, width=32).map(lambda length: length if length > 1e-6 else 0.0)
ONE = Workers(1)


def plan_of(*items: list[int]) -> Plan:
    """Clients who train on these items."""
    ptr = np.concatenate([[0], np.cumsum([len(client) for client in items])]).astype(np.int64)
    n = len(items)
    none = np.empty(0, np.int32)
    return Plan(
        ptr, np.array([item for client in items for item in client], np.int32), np.diff(ptr),
        np.zeros(n + 1, np.int64), none, none, np.zeros(n, np.uint64),
    )  # fmt: skip


def trained_of(rows: np.ndarray, dense: np.ndarray | None = None) -> Trained:
    dense = np.zeros((1, LAYOUT.size), np.float32) if dense is None else dense
    n = dense.shape[0]
    return Trained(rows.astype(np.float32), dense, np.zeros((n, PRIVATE), np.float32), np.zeros(n, np.float32))


def check_calibrated(found: np.ndarray, fresh: np.ndarray, length: float, said: float) -> None:
    size = np.linalg.norm(fresh.astype(np.float64))
    assert np.isfinite(found).all()
    if size == 0:
        assert said == 0
        assert not found.any()
    else:
        assert said == np.float32(length)
        np.testing.assert_allclose(found, fresh.astype(np.float64) * (length / size), rtol=1e-4, atol=1e-9)


def test_old_length_new_direction():
    trained = trained_of(np.array([[3, 4, 0], [0, 0, 2], [0, 0, 0]]))
    lengths = np.array([10, 0.5, 7], np.float32)
    dense_lengths = np.zeros((1, 2), np.float32)
    calibrate(plan_of([4, 5, 6]), trained, lengths, dense_lengths, LAYOUT, ONE)
    np.testing.assert_allclose(trained.rows, [[6, 8, 0], [0, 0, 0.5], [0, 0, 0]], rtol=1e-6)
    assert lengths.tolist() == [10, 0.5, 0]


def test_each_tensor_has_a_length_of_its_own():
    dense = np.zeros((2, LAYOUT.size), np.float32)
    dense[0, :6], dense[0, 6:], dense[1, 0] = 1, [3, 4], 2
    dense_lengths = np.array([[6, 1], [8, 8]], np.float32)
    trained = trained_of(np.empty((0, DIM)), dense)
    calibrate(plan_of([], []), trained, np.empty(0, np.float32), dense_lengths, LAYOUT, ONE)
    np.testing.assert_allclose(np.linalg.norm(trained.dense[:, :6], axis=1), [6, 8], rtol=1e-6)
    np.testing.assert_allclose(trained.dense[0, 6:], [0.6, 0.8], rtol=1e-6)
    assert dense_lengths.tolist() == [[6, 1], [8, 0]]


@given(st.data())
def test_any_update_gets_its_lengths_and_keeps_its_directions(data):
    counts = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    rows = data.draw(numbers((sum(counts), DIM)))
    dense = data.draw(numbers((len(counts), LAYOUT.size)))
    lengths = np.array(data.draw(st.lists(LENGTHS, min_size=len(rows), max_size=len(rows))), np.float32)
    dense_lengths = np.array([[data.draw(LENGTHS) for _ in range(2)] for _ in counts], np.float32)
    trained, said, dense_said = trained_of(rows.copy(), dense.copy()), lengths.copy(), dense_lengths.copy()
    calibrate(plan_of(*[list(range(count)) for count in counts]), trained, said, dense_said, LAYOUT, Workers(2))
    for i in range(len(rows)):
        check_calibrated(trained.rows[i], rows[i], lengths[i], said[i])
    for t, (found, fresh) in enumerate(zip(tensors(trained.dense), tensors(dense), strict=True)):
        for c in range(len(counts)):
            check_calibrated(found[c], fresh[c], dense_lengths[c, t], dense_said[c, t])


def test_lengths_are_looked_up_by_item_and_by_client_and_are_nothing_where_the_log_has_none():
    logged_plan = plan_of([5, 2, 9], [2, 7])
    logged = logged_of([np.diag([1.0, 2.0, 3.0]), np.diag([4.0, 5.0, 0])[:2]])
    fresh = plan_of([9, 1, 5], [7, 9, 2, 5])
    assert logged_lengths(fresh, logged, logged_plan, 10).tolist() == [3, 0, 1, 5, 0, 4, 0]
    assert logged_lengths(logged_plan, logged, logged_plan, 10).tolist() == [1, 2, 3, 4, 5]


def test_the_lengths_of_the_log_stay_as_they_are():
    plan, logged = plan_of([0, 1]), logged_of([np.eye(DIM)[:2]])
    lengths = logged_lengths(plan, logged, plan, 2)
    trained = trained_of(np.zeros((2, DIM)))
    calibrate(plan, trained, lengths, np.zeros((1, 2), np.float32), LAYOUT, ONE)
    assert lengths.tolist() == [0, 0]
    assert logged.lengths.tolist() == [1, 1]


def test_scaling_multiplies_each_row_by_its_items_factor_and_each_tensor_by_its_own():
    trained = trained_of(np.ones((3, DIM)), np.ones((2, LAYOUT.size), np.float32))
    plan = plan_of([2, 0], [2])
    scale(plan.items, trained, np.array([3, 5, 7], np.float32), np.array([0.5, 0], np.float32), LAYOUT)
    assert trained.rows[:, 0].tolist() == [7, 3, 7]
    assert trained.dense.tolist() == [[0.5] * 6 + [0] * 2] * 2
