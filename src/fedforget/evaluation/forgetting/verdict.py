"""The verdict on an unlearning method, by a rule that may also go against Retrain and against the audit itself.

What counts is the difference of the attack's AUC after the method and after Retrain, of the same users in the same
worlds.

1. Sees memory: the lower bound of the AUC for members before the erasure is above ``SEES``. Else nothing is proven.
2. Clean reference: the interval for Retrain reaches within ``MARGIN`` of 0.5. Else nothing is proven.
3. Still visible: the difference is further than ``MARGIN`` from 0, with an interval that is widened for the number of
   attacks and kinds of leavers that are tried (Bonferroni), since one of them is enough. Below 0 too: who looks less
   like a member than users who were never there is recognised as well.
4. Not distinguishable from Retrain: the interval of the difference lies within ± ``WITHIN``.
5. Else it is undecided, with the number of worlds that would decide if the estimate stays.

The verdict over several attacks and kinds of leavers is the worst one. That asks all of them to be alike, which needs
no correction for their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from fedforget.evaluation.forgetting.intervals import Interval

SEES, MARGIN, WITHIN = 0.6, 0.02, 0.05
BLIND, BIASED, ALIKE, VISIBLE, UNDECIDED = "blind", "biased", "like retrain", "visible", "undecided"
#: Verdicts from the one that counts least to the worst.
ORDER = [BLIND, ALIKE, BIASED, UNDECIDED, VISIBLE]
#: The largest number of worlds that is named, as a multiple of those there are.
MOST = 1000


@dataclass(frozen=True)
class Verdict:
    """What an audit says of a method, and why. ``worlds`` would decide if it is undecided."""

    kind: str
    text: str
    worlds: int | None = None


def judge(before: Interval, retrain: Interval, apart: Interval, worlds: int, tests: int = 1) -> Verdict:
    """The verdict on a method from the AUC before the erasure and after Retrain, and its difference to Retrain's.

    ``tests`` is the number of attacks and kinds of leavers that are tried.
    """
    if not before.low > SEES:
        text = (
            f"proves nothing: members are not clearly seen before the erasure (AUC {shown(before)}, of which the lower "
            f"bound must be above {SEES}): more worlds or rounds may help"
        )
        return Verdict(BLIND, text)
    if retrain.low > 0.5 + MARGIN or retrain.high < 0.5 - MARGIN:
        return Verdict(BIASED, f"proves nothing: users are seen after Retrain, who are not there ({shown(retrain)})")
    found = f"{shown(apart, sign=True)} against Retrain"
    kind = _decided(apart, 1.0, tests)
    if kind == ALIKE and not apart.half:
        return Verdict(ALIKE, "not distinguishable from Retrain: the same scores in all worlds")
    if kind == ALIKE:
        return Verdict(ALIKE, f"not distinguishable from Retrain: AUC {found}")
    if kind == VISIBLE:
        return Verdict(VISIBLE, f"still visible: AUC {found}")
    needed = worlds_to_decide(apart, worlds, tests)
    return Verdict(UNDECIDED, f"undecided at this resolution: AUC {found}; about {needed} worlds would decide", needed)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that is worst for the method; that of a blind attack only if there is no other."""
    return max(verdicts, key=lambda verdict: ORDER.index(verdict.kind))


def worlds_to_decide(apart: Interval, worlds: int, tests: int = 1) -> int:
    """The number of worlds with which the rule decides if the estimate stays and the interval shrinks by its root."""
    low, high = worlds, worlds * MOST
    while low < high:
        middle = (low + high) // 2
        if _decided(apart, middle / worlds, tests) == UNDECIDED:
            low = middle + 1
        else:
            high = middle
    return _even(low)


def shown(one: Interval, *, sign: bool = False) -> str:
    """An interval as text."""
    value, low, high = (f"{number:+.3f}" if sign else f"{number:.3f}" for number in (one.value, one.low, one.high))
    return f"{value} ({low} to {high})"


def _widened(tests: int) -> float:
    """How much wider intervals are that all of so many tests hold with 95%, one side of each."""
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / tests) / normal.inv_cdf(1 - 0.025)


def _even(number: float) -> int:
    """Worlds come in pairs."""
    return 2 * math.ceil(round(number / 2, 6))


def _decided(apart: Interval, factor: float, tests: int) -> str:
    """The outcome of the rule with ``factor`` times as many worlds."""
    half = apart.half / math.sqrt(factor)
    if abs(apart.value) - _widened(tests) * half > MARGIN:
        return VISIBLE
    return ALIKE if abs(apart.value) + half < WITHIN else UNDECIDED
