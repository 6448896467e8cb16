"""Candidate pools and plans: against the definition written out with sorted lists, and what must hold of any draw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedforget.device.plan import Plan, draw_plan
from fedforget.device.sampling import FLAGS, KINDS, Sampler, candidate_pool, kth_smallest, survey
from fedforget.errors import ConfigError
from fedforget.workers import Workers

ONE, TWO = Workers(1), Workers(2)
PERCENTS = st.integers(1, 100).map(float) | st.sampled_from([0.5, 12.5, 99.5])


def pool_of(kind: str, R: float, items, user, own) -> list[int]:
    """The pool, after checking that the scratch mask was handed back clean."""
    mask = np.zeros(items.shape[0], np.uint8)
    pool = candidate_pool(FLAGS[kind], float(R), items, *survey(items), user, np.array(own, np.int32), mask)
    assert not mask.any()
    assert pool.dtype == np.int32
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


@given(
    st.lists(
        st.sampled_from([0.0, 1.0, 1.5, 2.0, -3.0]) | st.floats(width=32, allow_nan=False), min_size=1, max_size=40
    ),
    st.data(),
)
def test_kth_smallest_is_the_kth_of_the_sorted_values(values, data):
    k = data.draw(st.integers(0, len(values) - 1))
    array = np.array(values, np.float32)
    assert kth_smallest(array, k) == np.sort(np.array(values, np.float32))[k]
    assert sorted(array.tolist()) == sorted(np.array(values, np.float32).tolist())


# A mean over 1, 2, 4, ... grid points is exact in float32, so that ties are ties in both computations.
@given(st.sampled_from(KINDS), PERCENTS, neighbourhoods([1, 2, 4, 8, 16]))
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_who_touched_everything_has_no_candidates_and_one_who_missed_one_has_that(kind):
    items = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    assert pool_of(kind, 25, items, items[0], range(6)) == []
    assert pool_of(kind, 25, items, items[0], [0, 1, 2, 4, 5]) == [3]


@pytest.mark.parametrize(
    ("setting", "value"), [("R", 0), ("R", 101), ("R", float("nan")), ("beta", 0), ("beta", 1.1), ("kind", "mixd")]
)
def test_a_sampler_refuses_settings_that_make_no_sense(setting, value):
    with pytest.raises(ConfigError, match=str(value)):
        Sampler(**{setting: value})


@given(st.integers(1, 9), st.floats(0.001, 1), st.integers(1, 5000))
def test_the_number_of_negatives_is_n_beta_positives_rounded_and_at_least_one(n, beta, positives):
    count = Sampler(beta=beta).count(n, positives)
    assert count >= 1
    assert count == 1 or abs(count - n * beta * positives) <= 0.5 + 1e-9


@dataclass(frozen=True)
class Cohort:
    """Clients with their own items and vectors, ready to be planned for, together or in part."""

    own: list[list[int]]
    items: np.ndarray
    users: np.ndarray
    keys: np.ndarray

    def plan(self, sampler, negatives=1, pairwise=False, round_=1, workers=ONE, only=None) -> Plan:
        chosen = list(range(len(self.own))) if only is None else only
        sizes = [len(self.own[client]) for client in chosen]
        return draw_plan(
            sampler,
            negatives=negatives,
            pairwise=pairwise,
            items=self.items,
            users=self.users[chosen],
            own_ptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            own_items=np.array([item for client in chosen for item in self.own[client]], np.int32),
            user_keys=self.keys[chosen],
            seed=3,
            round_=round_,
            workers=workers,
        )

    @classmethod
    def of(cls, own: list[list[int]], n_items: int, dim: int = 3) -> Cohort:
        rng = np.random.default_rng(n_items)
        return cls(
            own,
            rng.normal(size=(n_items, dim)).astype(np.float32),
            rng.normal(size=(len(own), dim)).astype(np.float32),
            np.arange(100, 100 + len(own), dtype=np.uint64),
        )


SAMPLERS = st.builds(Sampler, st.sampled_from(KINDS), PERCENTS, st.sampled_from([0.01, 0.3, 0.5, 1.0]))


@st.composite
def cohorts(draw) -> Cohort:
    n_items = draw(st.integers(1, 16))
    own = st.sets(st.integers(0, n_items - 1), min_size=1).map(sorted)
    return Cohort.of(draw(st.lists(own, max_size=5)), n_items)


def client_parts(plan: Plan, client: int) -> tuple:
    left, right = plan.client_samples(client)
    return (
        plan.client_items(client).tolist(),
        int(plan.positives[client]),
        left.tolist(),
        right.tolist(),
        int(plan.batch_keys[client]),
    )


@given(cohorts(), SAMPLERS, st.integers(1, 5))
def test_rows_are_the_own_items_and_then_different_negatives_from_the_pool(cohort, sampler, negatives):
    plan = cohort.plan(sampler, negatives)
    assert len(plan) == len(cohort.own)
    for client, own in enumerate(cohort.own):
        rows = plan.client_items(client).tolist()
        pool = pool_of(sampler.kind, sampler.R, cohort.items, cohort.users[client], own)
        wanted = sampler.count(negatives, len(own))
        assert plan.positives[client] == len(own)
        assert rows[: len(own)] == own
        drawn = rows[len(own) :]
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= set(pool)
        assert not set(drawn) & set(own)
        if len(pool) >= wanted:
            assert len(drawn) == wanted
        else:
            assert min(1, len(pool)) <= len(drawn) <= len(pool)


@given(cohorts(), SAMPLERS, st.integers(1, 5))
def test_single_samples_are_each_positive_once_and_as_many_negatives_as_asked_for(cohort, sampler, negatives):
    plan = cohort.plan(sampler, negatives)
    for client, own in enumerate(cohort.own):
        rows = plan.client_items(client)
        left, right = plan.client_samples(client)
        assert (right == -1).all()
        assert left[: len(own)].tolist() == list(range(len(own)))
        draws = left[len(own) :]
        assert not set(rows[draws].tolist()) & set(own)
        assert set(draws.tolist()) == set(range(len(own), rows.size))
        untouched = cohort.items.shape[0] - len(own)
        assert draws.size == (sampler.count(negatives, len(own)) if untouched else 0)


@given(cohorts(), SAMPLERS, st.integers(1, 5))
def test_pairs_set_an_own_item_against_another_until_all_are_used(cohort, sampler, negatives):
    single, paired = (cohort.plan(sampler, negatives, pairwise) for pairwise in (False, True))
    assert np.array_equal(single.items, paired.items)
    for client, own in enumerate(cohort.own):
        rows = paired.client_items(client)
        left, right = paired.client_samples(client)
        draws = single.client_samples(client)[0][len(own) :]
        if draws.size == 0:
            assert left.size == right.size == 0
            continue
        assert left.size == right.size == max(len(own), draws.size)
        assert set(rows[left].tolist()) == set(own)
        assert not set(rows[right].tolist()) & set(own)
        assert set(right.tolist()) == set(draws.tolist())
        # Both sides go round, so that uses differ by one at most.
        uses = Counter(left.tolist())
        assert max(uses.values()) - min(uses.values()) <= 1
        assert Counter(right.tolist()) == Counter(draws[np.arange(right.size) % draws.size].tolist())


@given(cohorts(), SAMPLERS, st.booleans(), st.data())
def test_a_client_draws_the_same_alone_in_any_company_and_on_any_number_of_workers(cohort, sampler, pairwise, data):
    together = cohort.plan(sampler, 4, pairwise)
    shared = cohort.plan(sampler, 4, pairwise, workers=TWO)
    order = data.draw(st.permutations(range(len(cohort.own))))
    mixed = cohort.plan(sampler, 4, pairwise, only=order)
    for place, client in enumerate(order):
        expected = client_parts(together, client)
        assert client_parts(shared, client) == expected
        assert client_parts(mixed, place) == expected
        assert client_parts(cohort.plan(sampler, 4, pairwise, only=[client]), 0) == expected


def test_a_pool_that_is_too_small_repeats_draws_but_not_rows():
    plan = Cohort.of([list(range(7))], 10).plan(Sampler("random", beta=1.0), negatives=4)
    rows = plan.client_items(0)
    left, _ = plan.client_samples(0)
    assert sorted(rows.tolist()) == list(range(10))
    assert left.size == 7 + 28
    assert set(rows[left[7:]].tolist()) == {7, 8, 9}


def test_a_user_who_touched_everything_trains_on_positives_alone():
    cohort = Cohort.of([[0, 1, 2], [0]], 3)
    plan = cohort.plan(Sampler("mixed"), negatives=4)
    assert client_parts(plan, 0)[:4] == ([0, 1, 2], 3, [0, 1, 2], [-1, -1, -1])
    assert plan.client_items(1).size > 1
    pairs = cohort.plan(Sampler("mixed"), negatives=4, pairwise=True)
    assert client_parts(pairs, 0)[:4] == ([0, 1, 2], 3, [], [])
    assert pairs.client_samples(1)[0].size > 0


def test_an_empty_cohort_has_an_empty_plan():
    plan = Cohort.of([], 5).plan(Sampler(), workers=TWO)
    assert len(plan) == plan.items.size == plan.left.size == plan.batch_keys.size == 0
    assert plan.item_ptr.tolist() == plan.sample_ptr.tolist() == [0]


def test_another_round_or_another_user_draws_otherwise():
    cohort = Cohort.of([[0, 1, 2, 3]] * 2, 200)
    sampler = Sampler("random", beta=1.0)
    plans = [cohort.plan(sampler, 4, round_=round_) for round_ in (1, 2)]
    drawn = [tuple(plan.client_items(client)[4:].tolist()) for plan in plans for client in (0, 1)]
    assert len(set(drawn)) == 4
    assert len({int(key) for plan in plans for key in plan.batch_keys}) == 4


@pytest.mark.parametrize(("kind", "negatives"), [("random", 2), ("mixed", 1), ("random", 60)])
def test_draws_are_even_over_the_pool(kind, negatives):
    """Many users with the same vectors and items, so the same pool; 60 negatives are more than it holds."""
    n_users = 3000 if negatives < 60 else 60
    cohort = Cohort.of([[2, 9, 10]] * n_users, 30)
    cohort.users[:] = cohort.users[0]
    plan = cohort.plan(Sampler(kind, 25.0, 1.0), negatives)
    pool = pool_of(kind, 25.0, cohort.items, cohort.users[0], [2, 9, 10])
    drawn = np.concatenate([plan.client_items(c)[plan.client_samples(c)[0][3:]] for c in range(n_users)])
    counts = np.bincount(drawn, minlength=30)
    assert sorted(np.flatnonzero(counts).tolist()) == pool
    expected = drawn.size / len(pool)
    assert (np.abs(counts[pool] - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_diverged_does_no_harm(bad):
    """Nothing sensible can be drawn then, but nothing may be read or written out of bounds either."""
    items = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    items[7] = bad
    pool = pool_of("mixed", 30, items, items[3], [1, 2])
    assert set(pool) <= set(range(40)) - {1, 2}
