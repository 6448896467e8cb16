"""Candidate pools: the fast marks against the plain pool, and that against the definition written out with lists."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedforget.device.sampling import (
    candidate_pool,
    distance_scratch,
    mark_nearest,
    mark_pool,
    measure,
    point_flags,
    survey,
)
from fedforget.errors import ConfigError
from fedforget.protocol.sampler import SAMPLERS
from tests.samplers import make_sampler

PERCENTS = st.integers(1, 100).map(float) | st.sampled_from([0.5, 12.5, 99.5])


def pool_of(kind: str, R: float, items, user, own) -> list[int]:
    """The pool, after checking that the marks that draws go by are the same."""
    own = np.array(own, np.int32)
    points, distances = distance_scratch(1, items)
    sampler, own_ptr = make_sampler(kind, R), np.array([0, own.size])
    n_points = measure(point_flags(sampler), items, *survey(items), user[None], own_ptr, own, points, distances)
    marked = np.full(items.shape[0], 7, np.uint8)
    mark_pool(float(R), distances[:n_points], own, marked)
    pool = candidate_pool(sampler, items, user, own)
    assert pool.dtype == np.int32
    assert sorted(set(marked.tolist()) - {0, 1}) == []
    assert np.flatnonzero(marked).tolist() == pool.tolist()
    return pool.tolist()


def near(point, items, free: list[int], R: float) -> list[int]:
    """The R percent of the free items nearest to a point, the lower index first among equals."""
    n = ceil(Fraction(R) * len(free) / 100)
    distance = ((items.astype(np.float64) - point) ** 2).sum(1)
    return sorted(free, key=lambda item: (distance[item], item))[:n]


def brute_force_pool(kind: str, R: float, items, user, own) -> list[int]:
    free = [item for item in range(items.shape[0]) if item not in own]
    if kind == "random":
        return free
    around_user = near(user.astype(np.float64), items, free, R) if kind != "item" else []
    around_items = near(items[own].astype(np.float64).mean(0), items, free, R) if kind != "user" else []
    return sorted({*around_user, *around_items})


@st.composite
def neighbourhoods(draw, own_sizes):
    """Items and a user on a small grid, where many distances are equal, and some own items."""
    n_items = draw(st.integers(1, 24))
    dim = draw(st.integers(1, 3))
    items = draw(arrays.arrays(np.float32, (n_items, dim), elements=st.integers(-2, 2).map(float)))
    user = draw(arrays.arrays(np.float32, dim, elements=st.integers(-2, 2).map(float)))
    size = draw(st.sampled_from([size for size in own_sizes if size <= n_items]))
    own = sorted(draw(st.permutations(range(n_items)))[:size])
    return items, user, own


@given(st.lists(st.sampled_from([0.0, 1.0, 1.5, -3.0]) | st.floats(width=32), min_size=1, max_size=40), st.data())
def test_the_nearest_are_the_first_of_a_stable_sort_whatever_the_distances(values, data):
    """Infinite ones and NaN (of either sign) included; NaN is farthest."""
    distances = np.array(values, np.float32) + np.float32(0)  # a distance is never -0
    own = np.array(sorted(data.draw(st.sets(st.integers(0, len(values) - 1), max_size=len(values) - 1))), np.int32)
    free = np.setdiff1d(np.arange(len(values)), own)
    n = data.draw(st.integers(1, free.size))
    before = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(values), max_size=len(values))), np.uint8)
    expected = before.copy()
    expected[free[np.argsort(distances[free], kind="stable")[:n]]] = 1
    mark_nearest(distances, own, n, before)
    assert before.tolist() == expected.tolist()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32))
def test_a_survey_turns_a_table_of_any_size_and_measures_its_rows(n_items, dim, seed):
    items = np.random.default_rng(seed).normal(size=(n_items, dim)).astype(np.float32)
    turned, lengths = survey(items)
    assert np.array_equal(turned[:dim, :n_items], items.T)
    assert not turned[dim:].any()
    assert not turned[:, n_items:].any()
    np.testing.assert_allclose(lengths, (items.astype(np.float64) ** 2).sum(1), rtol=1e-5)


# A mean over 1, 2, 4, ... grid points is exact in float32, so that ties are ties in both computations.
@given(st.sampled_from(list(SAMPLERS)), PERCENTS, neighbourhoods([1, 2, 4, 8, 16]))
def test_the_pool_is_that_of_the_definition_ties_included(kind, R, neighbourhood):
    assert pool_of(kind, R, *neighbourhood) == brute_force_pool(kind, R, *neighbourhood)


@given(st.sampled_from(["user", "item"]), PERCENTS, st.integers(0, 2**32), st.integers(1, 59))
def test_the_pool_of_any_vectors_is_the_nearest_share_up_to_rounding(kind, R, seed, n_own):
    rng = np.random.default_rng(seed)
    items, user = rng.normal(size=(60, 5)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    own = np.sort(rng.permutation(60)[:n_own])
    pool = pool_of(kind, R, items, user, own)
    free = np.setdiff1d(np.arange(60), own)
    assert len(set(pool)) == len(pool) == ceil(Fraction(R) * free.size / 100)
    assert set(pool) <= set(free.tolist())
    point = user if kind == "user" else items[own].astype(np.float64).mean(0)
    distance = ((items.astype(np.float64) - point) ** 2).sum(1)
    left_out = np.setdiff1d(free, pool)
    assert left_out.size == 0 or distance[pool].max() <= distance[left_out].min() + 1e-5


@given(st.integers(0, 2**32), PERCENTS)
def test_mixed_is_the_union_of_user_and_item(seed, R):
    rng = np.random.default_rng(seed)
    items, user = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    parts = [set(pool_of(kind, R, items, user, [1, 4, 30])) for kind in ("user", "item", "mixed")]
    assert parts[2] == parts[0] | parts[1]


@pytest.mark.parametrize(("R", "free", "expected"), [(7, 100, 7), (14, 50, 7), (28, 25, 7), (1, 100, 1), (1, 101, 2)])
def test_a_share_that_is_a_whole_number_of_items_is_not_rounded_up(R, free, expected):
    items = np.arange(free + 1, dtype=np.float32)[:, None]
    assert pool_of("user", R, items, items[0], [free]) == list(range(expected))


@pytest.mark.parametrize("kind", list(SAMPLERS))
def test_a_user_who_touched_everything_has_no_candidates_and_one_who_missed_one_has_that(kind):
    items = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    assert pool_of(kind, 25, items, items[0], range(6)) == []
    assert pool_of(kind, 25, items, items[0], [0, 1, 2, 4, 5]) == [3]


@pytest.mark.parametrize(
    ("setting", "value"), [("R", 0), ("R", 101), ("R", float("nan")), ("beta", 0), ("beta", 1.1), ("name", "mixd")]
)
def test_a_sampler_refuses_settings_that_make_no_sense(setting, value):
    with pytest.raises(ConfigError, match=str(value)):
        make_sampler(**{setting: value})


@given(st.integers(1, 9), st.floats(0.001, 1), st.integers(1, 5000))
def test_the_number_of_negatives_is_n_beta_positives_rounded_and_at_least_one(n, beta, positives):
    (count,) = make_sampler(beta=beta).count(n, np.array([positives])).tolist()
    assert count >= 1
    assert count == 1 or abs(count - n * beta * positives) <= 0.5 + 1e-9
    assert type(count) is int


@given(st.integers(1, 9), st.floats(0.001, 1), st.lists(st.integers(0, 5000)))
def test_many_counts_at_once_are_the_counts_one_by_one(n, beta, positives):
    counts = make_sampler(beta=beta).count(n, np.array(positives, np.int64))
    assert counts.dtype == np.int64
    assert counts.tolist() == [make_sampler(beta=beta).count(n, np.array([each]))[0] for each in positives]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_diverged_does_no_harm(bad):
    """Nothing sensible can be drawn then, but nothing may be read or written out of bounds either."""
    items = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    items[7] = bad
    pool = pool_of("mixed", 30, items, items[3], [1, 2])
    assert set(pool) <= set(range(40)) - {1, 2}
