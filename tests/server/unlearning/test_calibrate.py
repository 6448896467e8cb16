"""Calibration at the server, and that it agrees with the devices' own where a cohort is one client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fedforget as ff
from fedforget.models import Layout
from fedforget.server.aggregation import Step
from fedforget.server.unlearning.calibrate import GRANULARITIES, calibrate

LAYOUT = Layout({"w": (2, 2), "b": (2,)})
NUMBERS = (st.floats(-8, 8) | st.floats(-1e-3, 1e-3) | st.just(0.0)).map(lambda x: x if abs(x) > 1e-12 else 0.0)
STEPS = st.builds(
    Step,
    arrays.arrays(np.float64, (4, 3), elements=NUMBERS).map(np.float32),
    arrays.arrays(np.float64, LAYOUT.size, elements=NUMBERS).map(np.float32),
)


def step(items: list[list[float]], dense: list[float] | None = None) -> Step:
    return Step(np.array(items, np.float32), np.array(dense or [0] * LAYOUT.size, np.float32))


def parts(made: Step, granularity: str) -> list[np.ndarray]:
    """Everything that has a length of its own."""
    tensors = [made.dense[place] for place in LAYOUT.places.values()]
    return [*(made.items if granularity == "row" else [made.items]), *tensors]


def test_by_row_each_item_has_the_old_length_and_the_new_direction():
    old, fresh = step([[10, 0], [0, 1], [5, 0], [0, 0]]), step([[3, 4], [2, 0], [0, 0], [1, 1]])
    found, factors = calibrate(old, fresh, LAYOUT, "row")
    np.testing.assert_allclose(found.items, [[6, 8], [1, 0], [0, 0], [0, 0]], rtol=1e-6)
    assert factors.items.tolist() == [2, 0.5, 0, 0]


def test_by_tensor_the_whole_table_has_one_length():
    old, fresh = step([[0, 10], [0, 0]]), step([[3, 0], [0, 4]])
    found, factors = calibrate(old, fresh, LAYOUT, "tensor")
    np.testing.assert_allclose(found.items, [[6, 0], [0, 8]], rtol=1e-6)
    assert factors.items.tolist() == [2, 2]


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_other_tensors_are_whole_either_way(granularity):
    old, fresh = step([[0, 0]], [2, 0, 0, 0, 1, 0]), step([[0, 0]], [1, 1, 1, 1, 0, 0])
    found, factors = calibrate(old, fresh, LAYOUT, granularity)
    assert found.dense.tolist() == [1, 1, 1, 1, 0, 0]
    assert factors.dense.tolist() == [1, 0]


@pytest.mark.parametrize("granularity", GRANULARITIES)
@given(STEPS, STEPS)
def test_any_step_has_the_old_lengths_and_the_new_directions_and_no_nan(granularity, old, fresh):
    found, factors = calibrate(old, fresh, LAYOUT, granularity)
    for made in (found.items, found.dense, factors.items, factors.dense):
        assert np.isfinite(made).all()
        assert made.dtype == np.float32
    assert factors.items.shape == (4,)
    for was, now, then in zip(*(parts(made, granularity) for made in (found, fresh, old)), strict=True):
        length, size = np.linalg.norm(then.astype(np.float64)), np.linalg.norm(now.astype(np.float64))
        expected = now * (length / size) if size else np.zeros_like(now)
        np.testing.assert_allclose(was, expected, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@given(STEPS, STEPS)
def test_the_factors_are_what_the_step_was_multiplied_by_and_nothing_handed_in_changes(granularity, old, fresh):
    before = [array.copy() for array in (old.items, old.dense, fresh.items, fresh.dense)]
    found, factors = calibrate(old, fresh, LAYOUT, granularity)
    np.testing.assert_array_equal(found.items, fresh.items * factors.items[:, None])
    np.testing.assert_array_equal(found.dense, fresh.dense * np.repeat(factors.dense, [4, 2]))
    for array, was in zip((old.items, old.dense, fresh.items, fresh.dense), before, strict=True):
        np.testing.assert_array_equal(array, was)


@given(STEPS)
def test_a_fresh_step_that_is_the_old_one_stays(same):
    found, _ = calibrate(same, same, LAYOUT, "row")
    np.testing.assert_allclose(found.items, same.items, rtol=1e-6)
    np.testing.assert_allclose(found.dense, same.dense, rtol=1e-6)


@pytest.mark.parametrize("model", [ff.MF(dim=8), ff.NCF(dim=8, hidden=(16, 12, 8), negatives=2)], ids=lambda m: m.name)
@pytest.mark.parametrize("replay", ["fresh", "logged"])
def test_devices_and_server_agree_where_a_cohort_is_one_client(board, model, replay):
    """The first round, of a leaver and a stayer, is trained afresh by the one and taken from the log by the other."""
    fed = ff.Federation(
        board, model, log=ff.Log("float32"), training=ff.LocalTraining(epochs=4, batch=16, lr=0.01), seed=3
    )
    cohorts = {1: [5, 6], 2: [7], 3: [6], 4: [8], 5: [7], 6: [6]}
    fed.fit(rounds=6, cohorts=cohorts)
    results = []
    for calibration in ("device", "server"):
        copy = fed.copy()
        copy.forget([5], ff.FRU(replay_fraction=0.5, calibration=calibration, replay=replay, stride=1))
        results.append(copy)
    device, server = results
    assert np.abs(device.public.items - fed.public.items).max() > 1e-3
    np.testing.assert_allclose(device.public.items, server.public.items, rtol=0, atol=2e-5)
    np.testing.assert_allclose(device.public.dense, server.public.dense, rtol=0, atol=2e-5)
    for user in (6, 7, 8):
        np.testing.assert_allclose(device.devices.private(user), server.devices.private(user), rtol=0, atol=2e-5)
    logs = [made._run.current.devices.log for made in results]
    for round_, users in cohorts.items():
        keys = device.train.user_keys[[device.train.user_index(user) for user in users if user != 5]]
        one, other = (log.read(round_, keys)[1] for log in logs)
        np.testing.assert_allclose(one.rows, other.rows, rtol=0, atol=2e-5)
        np.testing.assert_allclose(one.dense, other.dense, rtol=0, atol=2e-5)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@given(STEPS, STEPS)
def test_rows_alone_leaves_other_tensors_as_they_were_trained(granularity, old, fresh):
    found, factors = calibrate(old, fresh, LAYOUT, granularity, "rows")
    everything, all_factors = calibrate(old, fresh, LAYOUT, granularity, "all")
    np.testing.assert_array_equal(found.items, everything.items)
    np.testing.assert_array_equal(factors.items, all_factors.items)
    np.testing.assert_array_equal(found.dense, fresh.dense)
    assert (factors.dense == 1).all()
