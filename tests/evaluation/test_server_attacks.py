"""Attacks of a curious server: each finds what it looks for where it is, and nothing where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.evaluation.server_attacks import ROW_ATTACKS, Received, auc, draw_places, precision
from fedforget.protocol.tasks import Train
from fedforget.runtime import randomness

DATA = ff.synthetic(users=30, items=120, mean_items=15, seed=0)


def updates_of(model: ff.Recommender, **settings):
    fed = ff.Federation(DATA, model, **settings)
    return fed, fed.clients().run(Train(5), {1: fed.members}, fed.public)[1].updates


def attacked(name: str, updates, key_of) -> float:
    """The mean AUC over all users."""
    found = []
    for place in range(len(updates)):
        one = updates.between(place, place + 1)
        own = np.isin(one.items, DATA.items_of(place))
        value = auc(ROW_ATTACKS[name](Received(one.items, one.rows, key_of(place), DATA.n_items)), own)
        found.append(value)
    return float(np.mean(found))


def known_keys(place: int) -> np.uint64:
    (key,) = randomness.priorities(0, randomness.NEGATIVES, 1, DATA.user_keys[place : place + 1])
    return key


def test_the_order_of_rows_tells_if_own_items_come_first():
    own_first = Received(np.array([7, 9, 1, 3]), np.zeros((4, 2), np.float32), np.uint64(0), 10)
    assert auc(ROW_ATTACKS["order"](own_first), np.array([True, True, False, False])) == 1.0
    sorted_ = Received(np.array([1, 3, 7, 9]), own_first.rows, np.uint64(0), 10)
    assert auc(ROW_ATTACKS["order"](sorted_), np.array([False, True, False, True])) == 0.5


def test_known_keys_repeat_the_draws_and_secret_ones_do_not():
    _, updates = updates_of(ff.MF(dim=4), sampler=ff.RandomSampler())
    assert attacked("seed", updates, known_keys) > 0.8
    assert abs(attacked("seed", updates, lambda place: np.uint64(place)) - 0.5) < 0.1


def test_the_draw_is_that_of_devices():
    """Without a pool the negatives of a device are the first items in the order that are not its own."""
    _, updates = updates_of(ff.MF(dim=4), sampler=ff.RandomSampler())
    for place in range(len(updates)):
        one = updates.between(place, place + 1)
        own = DATA.items_of(place)
        negatives = np.setdiff1d(one.items, own)
        order = np.argsort(draw_places(known_keys(place), DATA.n_items))
        assert set(order[~np.isin(order, own)][: negatives.size].tolist()) == set(negatives.tolist())


@pytest.mark.parametrize("model", [ff.MF(dim=8), ff.LightGCN(dim=8)], ids=lambda model: model.name)
def test_directions_of_plain_updates_tell_nearly_everything(model):
    _, updates = updates_of(model)
    assert attacked("direction", updates, lambda place: np.uint64(0)) > 0.95


def test_the_side_of_own_items_can_be_given():
    rows = np.array([[1.0, 0.1], [0.9, 0.0], [-0.2, 0.0], [-0.3, 0.1]], np.float32)
    given = Received(np.arange(4), rows, np.uint64(0), 4)
    own = np.array([True, True, False, False])
    assert auc(ROW_ATTACKS["direction"](given), own) == 1.0
    assert auc(ROW_ATTACKS["direction"](replace(given, side=-1)), own) == 0.0


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_and_precision_equal_their_definitions(pairs):
    scores, own = (np.array(column) for column in zip(*pairs, strict=True))
    scores = scores.astype(float)
    if own.all() or not own.any():
        assert auc(scores, own) is None
    else:
        wins = [(a > b) + (a == b) / 2 for a in scores[own] for b in scores[~own]]
        assert auc(scores, own) == pytest.approx(np.mean(wins))
    if own.any():
        rng = np.random.default_rng(0)
        count, drawn = int(own.sum()), []
        for _ in range(400):
            mixed = rng.permutation(scores.size)
            best = mixed[np.argsort(-scores[mixed], kind="stable")[:count]]
            drawn.append(own[best].mean())
        assert precision(scores, own) == pytest.approx(np.mean(drawn), abs=0.15)
