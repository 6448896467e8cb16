"""The generators: their shape, their seed, and that there is something to learn."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.data import checkerboard, synthetic
from fedforget.errors import ConfigError


def hit_rate(scores, train, test, k=10):
    """The share of users of whose test items at least one is among the k best untouched ones."""
    rows = np.arange(train.n_users)
    seen = np.zeros(scores.shape, bool)
    seen[train.pairs()] = True
    wanted = np.zeros(scores.shape, bool)
    wanted[test.pairs()] = True
    best = np.argsort(np.where(seen, -np.inf, scores), axis=1)[:, -k:]
    return wanted[rows[:, None], best].any(axis=1).mean()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tastes_beat_popularity_which_beats_chance(seed):
    train, test = synthetic(users=600, items=400, mean_items=20, seed=seed).split(seed=seed)
    touched = np.zeros((train.n_users, train.n_items))
    touched[train.pairs()] = 1
    popularity = touched.sum(axis=0)
    together = touched.T @ touched / np.sqrt(np.outer(popularity + 1, popularity + 1))
    chance = hit_rate(np.random.default_rng(seed).random(touched.shape), train, test)
    popular = hit_rate(np.broadcast_to(popularity, touched.shape), train, test)
    by_taste = hit_rate(touched @ (together * (1 - np.eye(train.n_items))), train, test)
    assert popular > 2 * chance
    assert by_taste > 1.25 * popular


def test_the_same_seed_gives_the_same_data():
    assert synthetic(seed=1) == synthetic(seed=1)
    assert synthetic(seed=1) != synthetic(seed=2)


def test_a_user_does_not_depend_on_the_crowd():
    few, many = synthetic(users=10, items=300), synthetic(users=500, items=300)
    for user in range(10):
        assert few.items_of(user).tolist() == many.items_of(user).tolist()


def test_activity_and_popularity_are_long_tailed():
    data = synthetic(users=3000, items=1000, mean_items=30)
    assert abs(data.counts.mean() - 30) < 1.5
    assert data.counts.mean() > 1.2 * np.median(data.counts)
    assert data.counts.min() >= 5
    popularity = np.sort(np.bincount(data.indices, minlength=1000))[::-1]
    assert popularity[:100].sum() > 0.3 * popularity.sum()
    assert popularity[-1] > 0


@pytest.mark.parametrize(
    ("users", "items", "tastes", "mean_items"),
    [(1, 1, 1, 1), (3, 2, 8, 30), (7, 5, 5, 5), (4, 12, 3, 100), (50, 11, 20, 6), (20, 4000, 1, 5)],
)
def test_any_size_works(users, items, tastes, mean_items):
    data = synthetic(users, items, tastes, mean_items)
    assert (data.n_users, data.n_items) == (users, items)
    assert data.counts.min() >= min(5, items)
    assert data.counts.max() <= max(min(5, items), items // 2)
    for user in range(users):
        assert (np.diff(data.items_of(user)) > 0).all()
    assert data.indices.min() >= 0
    assert data.indices.max() < items


@pytest.mark.parametrize("tastes", [2, 3, 5])
def test_a_checkerboard_shows_its_answer(tastes):
    data = checkerboard(users=20, items=31, tastes=tastes)
    users, items = data.pairs()
    assert (users % tastes == items % tastes).all()
    for user in range(20):
        colour = len(range(user % tastes, 31, tastes))
        assert 2 <= data.counts[user] < colour
    assert checkerboard(seed=1) == checkerboard(seed=1)
    assert checkerboard(seed=1) != checkerboard(seed=2)


def test_a_user_of_the_checkerboard_does_not_depend_on_the_crowd():
    few, many = checkerboard(users=4), checkerboard(users=40)
    assert [few.items_of(user).tolist() for user in range(4)] == [many.items_of(user).tolist() for user in range(4)]


@pytest.mark.parametrize("name", ["users", "items", "tastes", "mean_items"])
def test_a_size_of_nothing_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        synthetic(**{name: 0})


def test_a_checkerboard_needs_two_items_of_each_colour():
    with pytest.raises(ConfigError, match="items is 5"):
        checkerboard(items=5, tastes=3)
    with pytest.raises(ConfigError, match="The share is 0"):
        checkerboard(share=0)


@pytest.mark.slow
def test_a_hundred_thousand_users_are_made_at_once():
    data = synthetic(users=100_000, items=2000, mean_items=20)
    assert abs(len(data) / 100_000 - 20) < 0.5
