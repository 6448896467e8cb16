"""Intervals of a statistic of scores, and of its difference between two attacks, by a bootstrap.

Scores of one user in several worlds depend on each other, and so do scores of several users in one pair of worlds.
Resampling users and pairs at once counts the noise of single scores three times. So the statistic is resampled over
users, over pairs, and over both scores of a user in a pair, and the variance is the first plus the second minus the
third (two-way clustering: Cameron, Gelbach, Miller 2011). With few worlds the quantile is that of Student's t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from fedforget.evaluation.forgetting.scores import Floats, Ints, Scores

#: A statistic of scores for each row of weights.
Statistic = Callable[[Scores, Floats | None], Floats]
DRAWS = 200
#: Fewer users than these are no sample of others: the interval is for these users, and only worlds are resampled.
LEAST_USERS = 8
#: The quantile of the normal distribution for an interval with 95% coverage.
NORMAL = 1.959964


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval, before it was cut at 0 and 1."""
        return max(self.high - self.value, self.value - self.low)

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def interval(scores: Scores, statistic: Statistic, seed: int, draws: int = DRAWS) -> Interval:
    """The statistic with its interval; statistics are shares, so the interval is cut at 0 and 1."""
    value, half = _estimate(scores, lambda weights: statistic(scores, weights), seed, draws, _least_variance)
    return Interval(value, max(0.0, value - half), min(1.0, value + half))


def difference(scores: Scores, other: Scores, statistic: Statistic, seed: int, draws: int = DRAWS) -> Interval:
    """The statistic of scores minus that of others of the same users in the same worlds, with its interval."""
    if not (np.array_equal(scores.user, other.user) and np.array_equal(scores.group, other.group)):
        raise ValueError("These are scores of other users or worlds.")

    def apart(weights: Floats | None) -> Floats:
        return statistic(scores, weights) - statistic(other, weights)

    if np.array_equal(scores.value, other.value):
        return Interval(0.0, 0.0, 0.0)
    value, half = _estimate(scores, apart, seed, draws, lambda _, count: _least_variance(0.5, count))
    return Interval(value, value - half, value + half)


def _estimate(
    scores: Scores,
    statistic: Callable[[Floats | None], Floats],
    seed: int,
    draws: int,
    least: Callable[[float, int], float],
) -> tuple[float, float]:
    """A statistic and half the width of its interval, whose variance is at ``least`` that of the value and a count."""
    value = float(statistic(None)[0])
    smallest = min(int(scores.inside.sum()), int((~scores.inside).sum()))
    if not smallest:
        return value, 1.0  # nobody to compare with: it may be anything
    rng = np.random.default_rng([seed, scores.value.size])
    users, groups = _places(scores.user), _places(scores.group)
    both = _places(users * (int(groups.max()) + 1) + groups)
    few = int(users.max()) + 1 < LEAST_USERS
    by_group = _variance(statistic, groups, rng, draws, _fewest_in_a_fold(scores, groups) if few else None)
    by_user = 0.0 if few else _variance(statistic, users, rng, draws)
    by_both = _variance(statistic, both, rng, draws)
    variance = max(by_user + by_group - by_both, by_both) if by_user and by_group else by_user + by_group
    spread = np.sqrt(max(variance, least(value, smallest)))
    freedom = int(groups.max()) if few else min(int(users.max()), int(groups.max()))
    return value, student(max(freedom, 1)) * float(spread)


def student(freedom: int) -> float:
    """The 97.5% quantile of Student's t: by its expansion around the normal distribution, exact for 1 and 2."""
    if freedom <= 2:
        return (12.706205, 4.302653)[freedom - 1]
    z, n = NORMAL, float(freedom)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


def _variance(
    statistic: Callable[[Floats | None], Floats],
    places: Ints,
    rng: np.random.Generator,
    draws: int,
    fewest: int | None = None,
) -> float:
    """The variance of the statistic when clusters of scores are drawn with replacement; 0 for a single cluster.

    Draws vary too little if there are few clusters; ``fewest`` is the number of those that are compared.
    """
    clusters = int(places.max()) + 1
    if clusters < 2:
        return 0.0
    counts = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(np.float64)
    compared = max(fewest or clusters, 2)
    return float(statistic(counts[:, places]).var(ddof=1)) * compared / (compared - 1)


def _fewest_in_a_fold(scores: Scores, groups: Ints) -> int:
    """The number of groups in the fold that has fewest: scores are compared within folds only."""
    return min(int(np.unique(groups[scores.fold == fold]).size) for fold in np.unique(scores.fold))


def _least_variance(value: float, count: int) -> float:
    """That of a share of ``count`` which is half a case from 0 or 1, so that no interval is a point."""
    share = min(max(value, 0.5 / (count + 1)), 1 - 0.5 / (count + 1))
    return share * (1 - share) / (count + 1) / 4


def _places(labels: Ints) -> Ints:
    """Labels as 0, 1, 2, …"""
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
