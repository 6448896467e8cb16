"""Scores against slow loops, and intervals that cover the truth as often as they say."""

from __future__ import annotations

from math import erf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.evaluation.forgetting.attacks import likelihood_ratio
from fedforget.evaluation.forgetting.intervals import difference, interval, student
from fedforget.evaluation.forgetting.scores import Scores, auc, tpr_at
from tests.evaluation.forgetting.made import halves, normal_signals

LABELLED = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=30)


def scores(values: list[float], inside: list[bool], folds: list[int] | None = None) -> Scores:
    places = np.arange(len(values))
    fold = np.zeros_like(places) if folds is None else np.array(folds)
    return Scores(np.array(values, float), np.array(inside, bool), places, places, fold)


def slow_auc(values: list[float], inside: list[bool], weights: list[float]) -> float:
    won = total = 0.0
    for a, inside_a, weight_a in zip(values, inside, weights, strict=True):
        for b, inside_b, weight_b in zip(values, inside, weights, strict=True):
            if inside_a and not inside_b:
                won += weight_a * weight_b * ((a > b) + 0.5 * (a == b))
                total += weight_a * weight_b
    return won / total if total else 0.5


@given(LABELLED, st.randoms(use_true_random=False))
def test_auc_is_that_of_all_pairs_also_with_weights(labelled, random) -> None:  # type: ignore[no-untyped-def]
    values, inside = [float(value) for value, _ in labelled], [flag for _, flag in labelled]
    weights = [[float(random.randrange(4)) for _ in values] for _ in range(3)]
    found = auc(scores(values, inside), np.array(weights))
    assert found == pytest.approx([slow_auc(values, inside, row) for row in weights])
    assert auc(scores(values, inside))[0] == pytest.approx(slow_auc(values, inside, [1.0] * len(values)))


@given(LABELLED, st.sampled_from([0.0, 0.01, 0.2, 0.5, 1.0]))
def test_the_true_positive_rate_is_that_of_the_best_allowed_threshold(labelled, rate) -> None:  # type: ignore[no-untyped-def]
    values, inside = [float(value) for value, _ in labelled], [flag for _, flag in labelled]
    positive = [value for value, flag in labelled if flag]
    negative = [value for value, flag in labelled if not flag]
    best = 0.0
    for threshold in [-1, *set(values)]:
        alarms = sum(value > threshold for value in negative) / max(len(negative), 1)
        if alarms <= rate:
            best = max(best, sum(value > threshold for value in positive) / max(len(positive), 1))
    assert tpr_at(scores(values, inside), rate)[0] == pytest.approx(best)


def test_scores_are_compared_within_their_fold_only() -> None:
    both = scores([1, 2, 11, 12, 13], [False, True, False, True, True], [0, 0, 1, 1, 1])
    assert auc(both)[0] == 1
    assert auc(scores([1, 2, 11, 12, 13], [True, False, False, True, True], [0, 0, 1, 1, 1]))[0] == pytest.approx(2 / 3)
    assert tpr_at(scores([1, 2, 11, 12, 13], [True, False, False, True, True], [0, 0, 1, 1, 1]), 0)[0] == 2 / 3
    assert both.smallest_rate == 1


@pytest.mark.parametrize(("shift", "of_user", "of_world"), [(0.0, 0.0, 0.0), (1.0, 0.7, 0.0), (1.0, 0.0, 0.7)])
def test_intervals_cover_the_truth(shift: float, of_user: float, of_world: float) -> None:
    """95 of 100, whether scores are independent or those of one user, or of one world, stand and fall together."""
    rng, covered, widths, times = np.random.default_rng(5), 0, [], 200
    noise = (1 + of_user**2 + of_world**2) ** 0.5
    truth = 0.5 * (1 + erf(shift / noise / 2))
    for seed in range(times):
        inside, groups, folds = halves(24, 30, rng)
        effects = of_user * rng.normal(size=(2, 30))[inside.astype(int), np.arange(30)]
        effects = effects + of_world * rng.normal(size=(24, 2))[np.arange(24)[:, None], inside.astype(int)]
        table = shift * inside + effects + rng.normal(size=inside.shape)
        found = interval(Scores.of(table, inside, groups, folds), auc, seed, draws=150)
        covered += found.contains(truth)
        widths.append(found.half)
    assert 0.92 <= covered / times <= 0.995
    if not of_user and not of_world:  # no wider than independent scores need
        assert np.mean(widths) < 1.5 * 1.96 * (1 / 12 * 2 / 360) ** 0.5


def test_an_interval_is_never_a_point() -> None:
    perfect = scores([1.0, 2.0, 3.0, 4.0], [False, False, True, True])
    found = interval(perfect, auc, 0)
    assert found.value == 1.0
    assert found.low < 0.95


def test_quantiles_are_those_of_tables() -> None:
    tables = [12.706, 4.303, 2.571, 2.131, 2.040, 1.960]
    assert [student(n) for n in (1, 2, 5, 15, 31, 10**9)] == pytest.approx(tables, abs=2e-3)


@pytest.mark.parametrize("common", [0.0, 3.0])
def test_intervals_of_differences_cover_the_truth(common: float) -> None:
    """What both attacks share (the user, the world) cancels: the interval is no wider for it."""
    rng, covered, widths, times = np.random.default_rng(6), 0, [], 150
    for seed in range(times):
        inside, groups, folds = halves(16, 20, rng)
        both = common * rng.normal(size=inside.shape)
        pair = [Scores.of(both + rng.normal(size=inside.shape), inside, groups, folds) for _ in range(2)]
        found = difference(pair[0], pair[1], auc, seed, draws=150)
        covered += found.contains(0.0)
        widths.append(found.half)
    assert covered / times >= 0.92
    assert np.mean(widths) < 1.6 * 1.96 * (2 / 12 * 2 / 160) ** 0.5


def test_intervals_of_two_users_cover_the_truth() -> None:
    """In the case of a single user who leaves there are few scores, of which only those of a fold are compared."""
    rng, covered, times = np.random.default_rng(8), 0, 400
    for seed in range(times):
        inside, groups, folds = halves(24, 2, rng)
        signals = normal_signals(inside, [0.0] * 4, rng, of_world=0.0)
        table = likelihood_ratio(signals, inside, folds)
        covered += interval(Scores.of(table, inside, groups, folds), auc, seed, draws=100).contains(0.5)
    assert covered / times >= 0.93


def test_a_difference_is_that_of_both_and_nothing_against_itself() -> None:
    rng = np.random.default_rng(9)
    inside, groups, folds = halves(8, 12, rng)
    one, other = (Scores.of(rng.normal(size=inside.shape), inside, groups, folds) for _ in range(2))
    assert difference(one, other, auc, 0).value == pytest.approx(auc(one)[0] - auc(other)[0])
    assert difference(one, other, auc, 0).half > 0.02
    same = difference(one, one, auc, 0)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    fewer = Scores.of(rng.normal(size=(8, 11)), inside[:, 1:], groups, folds)
    with pytest.raises(ValueError, match="other users"):
        difference(one, fewer, auc, 0)


def test_nobody_to_compare_with_says_nothing() -> None:
    found = interval(scores([1.0, 2.0], [True, True]), auc, 0)
    assert (found.low, found.high) == (0, 1)
