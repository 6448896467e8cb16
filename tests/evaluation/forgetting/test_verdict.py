"""The rule of the verdict on intervals, and on made-up worlds of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.evaluation.forgetting.attacks import likelihood_ratio
from fedforget.evaluation.forgetting.intervals import Interval, difference, interval
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
EVEN = Interval(0.5, 0.45, 0.55)


def around(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half)


@pytest.mark.parametrize(
    ("before", "retrain", "apart", "kind"),
    [
        (SEEN, EVEN, around(0.01, 0.03), ALIKE),
        (SEEN, EVEN, around(0.0, 0.06), UNDECIDED),
        (SEEN, EVEN, around(-0.02, 0.02), ALIKE),
        (SEEN, EVEN, around(0.1, 0.03), VISIBLE),
        (SEEN, EVEN, around(0.04, 0.03), UNDECIDED),
        (SEEN, EVEN, around(0.035, 0.01), VISIBLE),  # visible, however small, if it is no chance
        (SEEN, EVEN, around(-0.06, 0.05), UNDECIDED),
        (SEEN, EVEN, around(-0.06, 0.03), VISIBLE),  # less like members than users who were never there
        (around(0.63, 0.03), EVEN, around(0.0, 0.03), BLIND),
        (around(0.63, 0.029), EVEN, around(0.0, 0.03), ALIKE),
        (SEEN, around(0.56, 0.03), around(0.0, 0.03), BIASED),
        (SEEN, around(0.44, 0.03), around(0.0, 0.03), BIASED),
        (SEEN, around(0.54, 0.03), around(0.0, 0.03), ALIKE),
    ],
)
def test_the_rule(before: Interval, retrain: Interval, apart: Interval, kind: str) -> None:
    verdict = judge(before, retrain, apart, 32)
    assert verdict.kind == kind
    assert ("proves nothing" in verdict.text) == (kind in (BLIND, BIASED))
    assert (verdict.worlds is not None) == (kind == UNDECIDED)


def test_the_number_of_worlds_that_would_decide() -> None:
    assert worlds_to_decide(around(0.04, 0.03), 32) == 74  # visible once 0.04 − 0.03 / √(n / 32) > 0.02
    assert "about 74 worlds would decide" in judge(SEEN, EVEN, around(0.04, 0.03), 32).text
    assert worlds_to_decide(around(0.01, 0.08), 8) == 34  # alike once 0.01 + 0.08 / √(n / 8) < 0.05
    assert worlds_to_decide(around(-0.04, 0.03), 32) == 74


def test_a_method_is_not_visible_by_chance_because_many_attacks_were_tried() -> None:
    assert judge(SEEN, EVEN, around(0.05, 0.025), 32).kind == VISIBLE
    assert judge(SEEN, EVEN, around(0.05, 0.025), 32, tests=8).kind == UNDECIDED  # 0.05 − 1.395 × 0.025 < 0.02
    assert judge(SEEN, EVEN, around(0.06, 0.025), 32, tests=8).kind == VISIBLE
    assert judge(SEEN, EVEN, around(0.0, 0.03), 32, tests=8).kind == ALIKE


def test_the_worst_verdict_counts() -> None:
    alike = judge(SEEN, EVEN, around(0.0, 0.03), 32)
    undecided = judge(SEEN, EVEN, around(0.04, 0.03), 32)
    visible = judge(SEEN, EVEN, around(0.1, 0.03), 32)
    blind = judge(EVEN, EVEN, around(0.0, 0.03), 32)
    assert worst([blind, alike]) == alike
    assert worst([alike, undecided, blind]) == undecided
    assert worst([visible, undecided]) == visible
    assert worst([blind]) == blind


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [([1.2], [0.0], ALIKE), ([1.2], [0.8], VISIBLE), ([0.1], [0.0], BLIND)],
)
def test_made_up_worlds(before: list[float], after: list[float], kind: str) -> None:
    """A method that removes memory, one that leaves most of it, and a model that never showed any."""
    rng = np.random.default_rng(6)
    inside, groups, folds = halves(48, 150, rng)

    def found(shifts: list[float]) -> Scores:
        table = likelihood_ratio(normal_signals(inside, shifts, rng), inside, folds)
        return Scores.of(table, inside, groups, folds)

    seen, method, retrain = found(before), found(after), found([0.0])
    apart = difference(method, retrain, auc, 0, draws=100)
    assert judge(interval(seen, auc, 0), interval(retrain, auc, 0), apart, 48).kind == kind
