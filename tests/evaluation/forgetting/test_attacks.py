"""Attacks find memory that was put there, find none where there is none, and agree with slow loops."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.evaluation.forgetting import attacks
from fedforget.evaluation.forgetting.attacks import likelihood_ratio, offline_ratio
from fedforget.evaluation.forgetting.intervals import interval
from fedforget.evaluation.forgetting.scores import Scores, auc
from tests.evaluation.forgetting.made import halves, normal_signals


def test_offline_ratio_is_the_slow_loop() -> None:
    rng = np.random.default_rng(0)
    inside, _, folds = halves(6, 7, rng)
    signal = rng.uniform(0.1, 1, inside.shape)

    def ratio(world: int, user: int) -> float:
        absent = [signal[w, user] for w in range(6) if w // 2 != world // 2 and not inside[w, user]]
        return float(signal[world, user] / np.mean(absent))

    found = offline_ratio(signal, inside, folds)
    for world in range(6):
        for user in range(7):
            others = [z for z in range(7) if not inside[world, z] and z != user]
            share = np.mean([ratio(world, user) > ratio(world, z) for z in others])
            assert found[world, user] == pytest.approx(share)


def test_offline_ratio_of_two_users_sees_nothing_where_nothing_is() -> None:
    """One of them is absent in each world, and has nobody to be compared with."""
    rng = np.random.default_rng(8)
    inside, groups, folds = halves(400, 2, rng)
    table = offline_ratio(rng.uniform(0.1, 1, inside.shape), inside, folds)
    assert set(table[~inside]) == {0.5}
    assert auc(Scores.of(table, inside, groups, folds))[0] == pytest.approx(0.5, abs=0.05)


def test_the_likelihood_ratio_is_that_of_each_users_gaussians(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many worlds, or no averaging over users, it is the textbook formula of one signal."""
    monkeypatch.setattr(attacks, "PRIOR", 0.0)
    monkeypatch.setattr(attacks, "ODD", 1e9)
    rng = np.random.default_rng(1)
    inside, _, folds = halves(12, 3, rng)
    signals = normal_signals(inside, [40.0], rng)  # so large a difference is not shrunk
    signals[..., 0] *= np.array([1.0, 5.0, 0.2])
    found = likelihood_ratio(signals[..., :1], inside, folds)
    tested = folds == 2
    rest, there = signals[~tested, :, 0], inside[~tested]
    means = [np.array([rest[there[:, u] == part, u].mean() for u in range(3)]) for part in (False, True)]
    residual = rest - np.where(there, means[1], means[0])
    spread = np.sqrt((residual**2).sum(0) / (len(rest) - 2))
    pooled = [float(((residual / spread)[there == part] ** 2).mean()) for part in (False, True)]
    x = np.clip((signals[tested, :, 0] - means[0]) / spread, -attacks.LARGEST, attacks.LARGEST)
    shift = (means[1] - means[0]) / spread
    expected = 0.5 * (x**2 / pooled[0] + np.log(pooled[0]) - (x - shift) ** 2 / pooled[1] - np.log(pooled[1]))
    assert found[tested] == pytest.approx(expected, rel=0.02)


def test_memory_is_found_and_combined() -> None:
    rng = np.random.default_rng(2)
    inside, groups, folds = halves(32, 40, rng)
    signals = normal_signals(inside, [0.5, 0.5, 0.5], rng, of_world=0.0)
    one, all_three = (
        float(auc(Scores.of(likelihood_ratio(signals[..., :kinds], inside, folds), inside, groups, folds))[0])
        for kinds in (1, 3)
    )
    assert one == pytest.approx(0.62, abs=0.03)  # Φ(0.5 / √2) = 0.638, less what the estimates of the means cost
    assert all_three == pytest.approx(0.72, abs=0.03)  # Φ(0.5 √3 / √2) = 0.730


def test_nothing_is_found_where_nothing_is() -> None:
    rng, covered = np.random.default_rng(3), 0
    for _ in range(60):
        inside, groups, folds = halves(16, 20, rng)
        table = likelihood_ratio(normal_signals(inside, [0.0, 0.0], rng), inside, folds)
        covered += interval(Scores.of(table, inside, groups, folds), auc, 0, draws=100).contains(0.5)
    assert covered >= 53


def test_one_odd_world_hides_no_memory() -> None:
    """A model that diverged has huge signals: what other worlds tell must not drown in their variance."""
    rng = np.random.default_rng(7)
    inside, groups, folds = halves(32, 40, rng)
    signals = normal_signals(inside, [1.5], rng, of_world=0.0)
    signals[5] *= 1e4
    found = auc(Scores.of(likelihood_ratio(signals, inside, folds), inside, groups, folds))[0]
    assert found > 0.78  # Φ(1.5 / √2) = 0.856 without the odd world


def test_users_who_never_or_always_took_part_and_missing_signals_are_bearable() -> None:
    rng = np.random.default_rng(4)
    inside, _, folds = halves(12, 8, rng)
    inside[:, 0], inside[:, 1] = True, False
    signals = normal_signals(inside, [1.0, 0.0], rng)
    signals[:, 2, 0] = np.nan
    signals[3, 4, 1] = np.nan
    missing = np.isnan(signals).any(axis=2)
    assert np.array_equal(np.isnan(likelihood_ratio(signals, inside, folds)), missing)
    ratios = np.exp(signals[..., 1])
    assert np.array_equal(np.isnan(offline_ratio(ratios, inside, folds)), np.isnan(ratios))


def test_one_single_user() -> None:
    rng = np.random.default_rng(5)
    inside, groups, folds = halves(40, 2, rng)
    table = likelihood_ratio(normal_signals(inside, [3.0], rng)[:, :1], inside[:, :1], folds)
    assert auc(Scores.of(table, inside[:, :1], groups, folds))[0] > 0.95
