"""Scores of users in worlds, and how well they tell users who took part from users who never did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Scores:
    """One score for each user and world: higher says that the user took part, which is so where ``inside``.

    ``user``, ``group`` and ``fold`` are indices. Worlds that were drawn together (a pair) have the same ``group``.
    Scores are compared with those of the same ``fold`` only, whose attack was fitted on the same other worlds: the
    scores of different fits depend on each other, which would move the AUC of an attack that sees nothing below 0.5.
    """

    value: Floats
    inside: Flags
    user: Ints
    group: Ints
    fold: Ints

    @classmethod
    def of(cls, table: Floats, inside: Flags, groups: Ints, folds: Ints) -> Scores:
        """The scores of a table with a row for each world and a column for each user; NaN is left out."""
        world, user = np.nonzero(np.isfinite(table))
        return cls(table[world, user], inside[world, user], user, groups[world], folds[world])

    @property
    def smallest_rate(self) -> float:
        """The smallest false-positive rate that all folds can resolve: one false alarm among a fold's negatives."""
        return 1 / max(min((int((~self.inside & (self.fold == fold)).sum()) for fold in set(self.fold)), default=0), 1)


def auc(scores: Scores, weights: Floats | None = None) -> Floats:
    """The probability that a user who took part has a higher score than one who did not; ties count half.

    One value for each row of ``weights`` (draws, scores), which count the scores; by default each counts once.
    """
    won, pairs = np.zeros(1), np.zeros(1)
    for value, inside, weight in _by_fold(scores, weights):
        order, start, end = _ties(value)
        positive, negative = (weight * inside)[:, order], (weight * ~inside)[:, order]
        below = np.concatenate([np.zeros((len(weight), 1)), np.cumsum(negative, axis=1)], axis=1)
        won = won + (positive * (below[:, start] + below[:, end])).sum(1) / 2
        pairs = pairs + positive.sum(1) * negative.sum(1)
    return _ratio(won, pairs, 0.5)


def tpr_at(scores: Scores, rate: float, weights: Floats | None = None) -> Floats:
    """The share of users that are found at the thresholds (one per fold) with at most this false-positive rate."""
    found, total = np.zeros(1), np.zeros(1)
    for value, inside, weight in _by_fold(scores, weights):
        order, _, end = _ties(-value)
        ends = np.unique(end) - 1
        true, false = (np.cumsum((weight * part)[:, order], axis=1)[:, ends] for part in (inside, ~inside))
        allowed = false <= rate * false[:, -1:] + 1e-9
        found = found + np.where(allowed, true, 0.0).max(1)
        total = total + true[:, -1]
    return _ratio(found, total, 0.0)


def _by_fold(scores: Scores, weights: Floats | None) -> Iterator[tuple[Floats, Flags, Floats]]:
    """The scores, their labels and their weights (draws, scores) of each fold."""
    counted = np.ones((1, scores.value.size)) if weights is None else weights
    for fold in np.unique(scores.fold):
        here = scores.fold == fold
        yield scores.value[here], scores.inside[here], counted[:, here]


def _ties(values: Floats) -> tuple[Ints, Ints, Ints]:
    """The ascending order, and for each place in it where its group of equal values starts and ends."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.searchsorted(ordered, ordered, side="left")
    end = np.searchsorted(ordered, ordered, side="right")
    return order, start.astype(np.int64), end.astype(np.int64)


def _ratio(above: Floats, below: Floats, otherwise: float) -> Floats:
    """A ratio of arrays; ``otherwise`` where the denominator is 0, as in a draw without positives."""
    out: Floats = np.full(above.shape, otherwise)
    np.divide(above, below, out=out, where=below > 0)
    return out
