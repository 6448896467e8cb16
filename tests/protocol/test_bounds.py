"""Bounds on updates: devices keep them, the server rejects what is larger, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.protocol import reasons
from fedforget.protocol.bounds import DENSE, Bounds
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.server.aggregation import Step
from fedforget.server.optimiser import SGD
from fedforget.server.roster import Roster
from fedforget.server.rounds import Aggregator
from fedforget.server.state import ServerState
from fedforget.simulation.clients import SimulatedClients

DATA = ff.synthetic(users=20, items=50, mean_items=8, seed=0)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 1e30))
def test_a_shortened_update_is_within_the_bounds_and_keeps_its_directions(seed, scale):
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(6, 4)) * scale).astype(np.float32)
    dense = (rng.normal(size=(2, 5)) * scale).astype(np.float32)
    before, ptr, bounds = rows.copy(), np.array([0, 2, 6]), Bounds(3.0)
    bounds.shorten(rows, dense)
    assert bounds.exceeded(ptr, rows, dense) is None
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    short = np.linalg.norm(before.astype(np.float64), axis=1) <= 3.0
    np.testing.assert_array_equal(rows[short], before[short])
    np.testing.assert_allclose(lengths[~short], 3.0, rtol=1e-5)
    cosine = (rows.astype(np.float64) * before.astype(np.float64)).sum(1)
    cosine /= lengths * np.linalg.norm(before.astype(np.float64), axis=1)
    np.testing.assert_allclose(cosine, 1.0, rtol=1e-5)


def test_only_the_clients_beyond_the_bound_are_named():
    ptr, rows = np.array([0, 2, 2, 4]), np.ones((4, 4), np.float32)
    dense = np.ones((3, 9), np.float32)
    bounds = Bounds(2.0)
    assert bounds.exceeded(ptr, rows, dense) is None
    rows[3] *= 1.1
    assert bounds.exceeded(ptr, rows, dense).tolist() == [False, False, True]
    dense[1] *= DENSE
    assert bounds.exceeded(ptr, rows, dense).tolist() == [False, True, True]


class Loud(SimulatedClients):
    """Some clients send something else."""

    change: Callable[[np.ndarray], np.ndarray]
    users: tuple[int, ...]

    def run(self, task, asked, public=None):  # type: ignore[no-untyped-def]
        results = super().run(task, asked, public)
        return {round_: self._changed(result) for round_, result in results.items()}

    def _changed(self, result: CohortResult) -> CohortResult:
        updates = result.updates
        rows = updates.rows.copy()
        for place, user in enumerate(updates.users):
            if user in self.users:
                part = slice(updates.ptr[place], updates.ptr[place + 1])
                rows[part] = self.change(rows[part])
        return replace(result, updates=replace(updates, rows=rows))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows * np.float32(1e6), reasons.TOO_LARGE),
        (lambda rows: rows * np.float32(1e30), reasons.TOO_LARGE),
        (lambda rows: np.full_like(rows, 3.4e38), reasons.TOO_LARGE),
        (lambda rows: np.full_like(rows, np.inf), reasons.NOT_FINITE),
        (lambda rows: np.full_like(rows, np.nan), reasons.NOT_FINITE),
    ],
    ids=["1e6", "1e30", "3.4e38", "inf", "nan"],
)
@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.IALS(dim=4)], ids=lambda model: model.name)
def test_who_sends_too_much_is_left_out_and_named(model, change, reason, monkeypatch):
    federations = [ff.Federation(DATA, model, server=ff.ServerConfig(fraction=1.0)) for _ in range(2)]
    attacked, honest = federations
    Loud.change, Loud.users = staticmethod(change), (3, 7)
    monkeypatch.setattr(attacked, "clients", lambda: Loud(attacked.devices))
    attacked.fit(2)
    honest.offline = lambda round_, user: user in (3, 7)
    honest.fit(2)
    assert attacked.history.record(2).failures == {3: reason, 7: reason}
    np.testing.assert_array_equal(attacked.public.items, honest.public.items)


def test_a_step_that_overflows_is_not_stored():
    fed = ff.Federation(DATA, ff.MF(dim=4))
    aggregator = Aggregator(ff.ServerConfig(optimiser=SGD(lr=10.0)), fed.model, Roster(fed.members))
    step = Step(np.full_like(fed.public.items, 1e38), np.empty(0, np.float32))
    with pytest.raises(ff.RunError, match="would put NaN or infinity into the model"):
        aggregator.apply(ServerState(fed.public), step, 1)


def test_the_bound_is_a_setting_and_part_of_the_terms():
    assert ff.configure(ff.MF()).bounds == Bounds(20.0)
    assert ff.configure(ff.IALS()).bounds == Bounds(100.0)
    assert ff.configure(ff.MF(), training={"clip": 3.0}).bounds == Bounds(3.0)
    with pytest.raises(ff.ConfigError, match="clip is 0"):
        ff.LocalTraining(clip=0.0)
    fed = ff.Federation(DATA, ff.MF(dim=4), training=ff.LocalTraining(clip=0.01), server=ff.ServerConfig(fraction=1.0))
    fed.fit(2)
    assert not fed.history.record(2).failures  # devices keep it


def test_nothing_to_check():
    none = Updates.none(4, 2)
    assert Bounds(1.0).exceeded(none.ptr, none.rows, none.dense) is None
    Bounds(1.0).shorten(none.rows, none.dense)
