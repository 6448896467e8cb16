"""The rule of the verdict on intervals, and on made-up worlds of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.evaluation.forgetting.attacks import likelihood_ratio
from fedforget.evaluation.forgetting.intervals import Interval, interval
from fedforget.evaluation.forgetting.scores import Scores, auc
from fedforget.evaluation.forgetting.verdict import (
    ALIKE,
    BIASED,
    BLIND,
    UNDECIDED,
    VISIBLE,
    judge,
    worlds_to_decide,
    worst,
)
from tests.evaluation.forgetting.made import halves, normal_signals

SEEN = Interval(0.8, 0.75, 0.85)


def around(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half)


@pytest.mark.parametrize(
    ("before", "method", "retrain", "kind"),
    [
        (SEEN, around(0.51, 0.03), around(0.5, 0.03), ALIKE),
        (SEEN, around(0.45, 0.02), around(0.5, 0.05), ALIKE),
        (SEEN, around(0.6, 0.03), around(0.5, 0.03), VISIBLE),
        (SEEN, around(0.54, 0.03), around(0.5, 0.03), UNDECIDED),
        (SEEN, around(0.44, 0.03), around(0.5, 0.03), UNDECIDED),
        (around(0.63, 0.03), around(0.5, 0.03), around(0.5, 0.03), BLIND),
        (around(0.63, 0.029), around(0.5, 0.03), around(0.5, 0.03), ALIKE),
        (SEEN, around(0.6, 0.03), around(0.56, 0.03), BIASED),
    ],
)
def test_the_rule(before: Interval, method: Interval, retrain: Interval, kind: str) -> None:
    verdict = judge("fru", before, method, retrain, 32)
    assert verdict.kind == kind
    assert ("proves nothing" in verdict.text) == (kind in (BLIND, BIASED))
    assert (verdict.worlds is not None) == (kind == UNDECIDED)


def test_the_number_of_worlds_that_would_decide() -> None:
    method, retrain = around(0.54, 0.03), around(0.5, 0.03)
    needed = worlds_to_decide(method, retrain, 32)
    assert needed == 74  # visible once 0.04 > 0.06 / √(n / 32)
    assert "about 74 worlds would decide" in judge("fru", SEEN, method, retrain, 32).text
    assert worlds_to_decide(around(0.51, 0.1), around(0.5, 0.01), 8) == 648  # alike once 0.09 / √(n / 8) < 0.01
    assert worlds_to_decide(around(0.4, 0.03), around(0.5, 0.04), 32) == 128  # 0.04 / √4 is the margin


def test_the_worst_verdict_counts() -> None:
    alike = judge("fru", SEEN, around(0.5, 0.03), around(0.5, 0.03), 32)
    undecided = judge("fru", SEEN, around(0.54, 0.03), around(0.5, 0.03), 32)
    blind = judge("fru", around(0.5, 0.1), around(0.5, 0.03), around(0.5, 0.03), 32)
    assert worst([blind, alike]) == alike
    assert worst([alike, undecided, blind]) == undecided
    assert worst([blind]) == blind


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [([1.2], [0.0], ALIKE), ([1.2], [0.8], VISIBLE), ([0.1], [0.0], BLIND)],
)
def test_made_up_worlds(before: list[float], after: list[float], kind: str) -> None:
    """A method that removes memory, one that leaves most of it, and a model that never showed any."""
    rng = np.random.default_rng(6)
    inside, groups, folds = halves(48, 150, rng)

    def found(shifts: list[float]) -> Interval:
        table = likelihood_ratio(normal_signals(inside, shifts, rng), inside, folds)
        return interval(Scores.of(table, inside, groups, folds), auc, 0, draws=100)

    assert judge("m", found(before), found(after), found([0.0]), 32).kind == kind
