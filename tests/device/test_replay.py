"""What a replayed round does on the devices: which lengths, whose directions, how far the private part goes."""

from __future__ import annotations

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.devices import Devices
from fedforget.models import GlobalParameters
from fedforget.protocol.tasks import Replay
from fedforget.protocol.updates import Updates
from fedforget.runtime.randomness import UserId
from tests.small_federations import trained

ROUND = 3
NCF = ff.NCF(dim=8, hidden=(16, 8, 4))


Past = tuple[Devices, GlobalParameters, list[UserId], ff.Federation]


def branched(model: ff.Recommender) -> Past:
    """Devices on a new trajectory that branches off just before a round, and that round's users but one."""
    fed = trained(rounds=4, model=model, log=ff.Log("float32", "all"))
    forgotten, *users = fed.cohort(ROUND)
    keys = fed.train.only([forgotten]).user_keys
    devices = fed.devices.branch(
        fed.devices.log.branch(None, ROUND - 1, keys), ROUND - 1, fed.train.without([forgotten])
    )
    return devices, fed.history.snapshot(ROUND - 1), users, fed


@pytest.fixture
def past() -> Past:
    return branched(NCF)


def replayed(past: Past, how: Replay) -> tuple[Updates, np.ndarray]:
    """The updates sent, and how far each user's private parameters have moved."""
    devices, public, users, _ = past
    devices.roll_back(ROUND - 1)
    before = np.stack([devices.private(user) for user in users])
    updates = devices.replay({ROUND: users}, public, how)[ROUND].updates
    assert list(updates.users) == users
    return updates, np.stack([devices.private(user) for user in users]) - before


def dense_lengths(dense: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.norm(dense[:, part], axis=1) for part in NCF.dense_layout.places.values()], axis=1)


def test_rows_get_their_old_lengths_and_other_tensors_stay_as_trained(past) -> None:
    fresh, _ = replayed(past, Replay(1, "logged", parts="none"))
    found, _ = replayed(past, Replay(1, "logged", parts="rows"))
    _, logged, _ = past[-1].devices.log.read(ROUND, past[0].interactions.only(past[2]).user_keys)
    np.testing.assert_array_equal(found.dense, fresh.dense)
    stored = dict(zip(logged.keys.tolist(), np.split(logged.lengths, logged.row_ptr[1:-1]), strict=True))
    for place, user in enumerate(found.users):
        rows = found.rows[found.ptr[place] : found.ptr[place + 1]]
        key = int(past[0].interactions.only([user]).user_keys[0])
        np.testing.assert_allclose(np.sort(np.linalg.norm(rows, axis=1)), np.sort(stored[key]), rtol=1e-4)


def test_all_parts_get_their_old_lengths_where_that_is_asked_for(past) -> None:
    rows, _ = replayed(past, Replay(1, "logged", parts="rows"))
    everything, _ = replayed(past, Replay(1, "logged", parts="all"))
    devices, _, users, fed = past
    keys = np.array([devices.interactions.only([user]).user_keys[0] for user in users])
    _, logged, _ = fed.devices.log.read(ROUND, keys)
    np.testing.assert_array_equal(rows.rows, everything.rows)
    np.testing.assert_allclose(dense_lengths(everything.dense), logged.dense_lengths, rtol=1e-4)
    assert not np.allclose(dense_lengths(rows.dense), logged.dense_lengths, rtol=0.01)


@pytest.mark.parametrize("parts", ["rows", "all"])
def test_the_new_log_has_the_lengths_of_what_was_sent(past, parts: str) -> None:
    updates, _ = replayed(past, Replay(1, "logged", parts))
    devices, _, users, _ = past
    keys = np.array([devices.interactions.only([user]).user_keys[0] for user in users])
    _, logged, _ = devices.log.read(ROUND, keys)
    sent = np.split(np.linalg.norm(updates.rows, axis=1), updates.ptr[1:-1])  # in the order of the catalogue
    for one, other in zip(np.split(logged.lengths, logged.row_ptr[1:-1]), sent, strict=True):
        np.testing.assert_allclose(np.sort(one), np.sort(other), rtol=1e-4)
    np.testing.assert_allclose(logged.dense_lengths, dense_lengths(updates.dense), rtol=1e-4)


def test_the_private_update_is_scaled_and_nothing_else_is(past) -> None:
    plain, moved = replayed(past, Replay(1, "logged"))
    scaled, moved_further = replayed(past, Replay(1, "logged", private_scale=3.0))
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(moved_further, 3 * moved, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(plain.rows, scaled.rows)
    np.testing.assert_array_equal(plain.dense, scaled.dense)
    _, moved_again = replayed(past, Replay(1, "logged", private_scale=3.0))
    np.testing.assert_array_equal(moved_again, moved_further)


def test_a_scale_makes_up_for_the_epochs_left_out() -> None:
    """Where Adam keeps its direction, all epochs go about as far as one epoch taken as often."""
    past = branched(ff.LightGCN(dim=8))
    _, whole = replayed(past, Replay(3, "logged"))
    _, short = replayed(past, Replay(1, "logged"))
    _, scaled = replayed(past, Replay(1, "logged", private_scale=3.0))
    assert np.linalg.norm(scaled - whole) < 0.5 * np.linalg.norm(short - whole)
