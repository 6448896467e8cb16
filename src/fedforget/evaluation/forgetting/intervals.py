"""Intervals of a statistic of scores, by a bootstrap over users and over worlds.

Scores of one user in several worlds depend on each other, and so do scores of several users in one world. Resampling
users and worlds at once counts the noise of single scores three times. So the statistic is resampled over users, over
worlds and over single scores, and the variance is the first plus the second minus the third (two-way clustering:
Cameron, Gelbach, Miller 2011). With few worlds the quantile is that of Student's t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from fedforget.evaluation.forgetting.scores import Floats, Ints, Scores

#: A statistic of scores for each row of weights.
Statistic = Callable[[Scores, Floats | None], Floats]
DRAWS = 400
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
    value = float(statistic(scores, None)[0])
    rng = np.random.default_rng([seed, scores.value.size])
    users, groups = _places(scores.user), _places(scores.group)
    by_group = _variance(scores, statistic, groups, rng, draws)
    few = int(users.max(initial=0)) + 1 < LEAST_USERS
    by_user = 0.0 if few else _variance(scores, statistic, users, rng, draws)
    by_score = _variance(scores, statistic, np.arange(users.size), rng, draws)
    variance = max(by_user + by_group - by_score, by_score) if by_user and by_group else by_user + by_group
    smallest = min(int(scores.inside.sum()), int((~scores.inside).sum()))
    spread = np.sqrt(max(variance, _least_variance(value, smallest)))
    freedom = int(groups.max()) if few else min(int(users.max()), int(groups.max()))
    half = student(max(freedom, 1)) * float(spread)
    return Interval(value, max(0.0, value - half), min(1.0, value + half))


def student(freedom: int) -> float:
    """The 97.5% quantile of Student's t, by its expansion around the normal distribution."""
    z, n = NORMAL, float(freedom)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


def _variance(scores: Scores, statistic: Statistic, places: Ints, rng: np.random.Generator, draws: int) -> float:
    """The variance of the statistic when clusters of scores are drawn with replacement; 0 for a single cluster."""
    clusters = int(places.max()) + 1
    if clusters < 2:
        return 0.0
    counts = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(np.float64)
    return float(statistic(scores, counts[:, places]).var(ddof=1)) * clusters / (clusters - 1)


def _least_variance(value: float, count: int) -> float:
    """That of a share of ``count`` which is half a case from 0 or 1, so that no interval is a point."""
    share = min(max(value, 0.5 / (count + 1)), 1 - 0.5 / (count + 1))
    return share * (1 - share) / (count + 1) / 4


def _places(labels: Ints) -> Ints:
    """Labels as 0, 1, 2, …"""
    return np.unique(labels, return_inverse=True)[1].reshape(-1).astype(np.int64)
