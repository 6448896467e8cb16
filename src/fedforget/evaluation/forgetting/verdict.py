"""The verdict on an unlearning method, by a rule that may also go against Retrain and against the audit itself.

1. Sees memory: the lower bound of the AUC for members before the erasure is above ``SEES``. Else nothing is proven.
2. Clean reference: the interval for Retrain contains 0.5. Else nothing is proven.
3. The method is not distinguishable from Retrain if its interval lies within Retrain's, widened by ``MARGIN``.
4. It is still visible if its lower bound is above Retrain's upper bound.
5. Else it is undecided, with the number of worlds that would decide if the estimates stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedforget.evaluation.forgetting.intervals import Interval

SEES, MARGIN = 0.6, 0.02
BLIND, BIASED, ALIKE, VISIBLE, UNDECIDED = "blind", "biased", "like retrain", "visible", "undecided"
#: Verdicts from the best to the worst for a method.
ORDER = [ALIKE, UNDECIDED, VISIBLE]
#: The largest number of worlds that is named, as a multiple of those there are.
MOST = 1000


@dataclass(frozen=True)
class Verdict:
    """What an audit says of a method, and why. ``worlds`` would decide if it is undecided."""

    kind: str
    text: str
    worlds: int | None = None


def judge(name: str, before: Interval, method: Interval, retrain: Interval, worlds: int) -> Verdict:
    """The verdict on a method from the AUC before the erasure, after it, and after Retrain."""
    if not before.low > SEES:
        return Verdict(
            BLIND,
            f"proves nothing: the audit cannot see members before the erasure ({_shown(before)}, and its lower bound "
            f"must be above {SEES})",
        )
    if not retrain.contains(0.5):
        found = f"the audit sees users after Retrain, who are not there ({_shown(retrain)})"
        return Verdict(BIASED, f"proves nothing: {found}")
    seen = f"sees the members before the erasure ({_shown(before)}) and after Retrain no more than chance"
    kind = _decided(method, retrain, 1.0)
    if kind == ALIKE:
        alike = f"not distinguishable from Retrain at this resolution (±{method.half:.3f})"
        return Verdict(ALIKE, f"{seen}; after {name}: {alike}")
    if kind == VISIBLE:
        return Verdict(VISIBLE, f"{seen}; after {name}: still visible ({_shown(method)})")
    needed = worlds_to_decide(method, retrain, worlds)
    open_ = f"undecided at this resolution ({_shown(method)}); about {needed} worlds would decide"
    return Verdict(UNDECIDED, f"{seen}; after {name}: {open_}", needed)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that is worst for the method; that of a blind or biased audit only if there is no other."""
    given = list(verdicts)
    return max(given, key=lambda verdict: ORDER.index(verdict.kind) if verdict.kind in ORDER else -1)


def worlds_to_decide(method: Interval, retrain: Interval, worlds: int) -> int:
    """The number of worlds with which the rule decides if both estimates stay and intervals shrink by its root.

    If it never would, since the method is below Retrain, the number with which both intervals are as narrow as the
    margin: an estimate that far below is then no chance.
    """
    low, high = worlds, worlds * MOST
    if _decided(method, retrain, MOST) == UNDECIDED:
        return _even(worlds * (max(method.half, retrain.half) / MARGIN) ** 2)
    while low < high:
        middle = (low + high) // 2
        if _decided(method, retrain, middle / worlds) == UNDECIDED:
            low = middle + 1
        else:
            high = middle
    return _even(low)


def _even(number: float) -> int:
    """Worlds come in pairs."""
    return 2 * math.ceil(round(number / 2, 6))


def _decided(method: Interval, retrain: Interval, factor: float) -> str:
    """The outcome of the rule with ``factor`` times as many worlds."""
    method, retrain = (_narrowed(one, math.sqrt(factor)) for one in (method, retrain))
    if method.low > retrain.high:
        return VISIBLE
    inside = retrain.low - MARGIN <= method.low and method.high <= retrain.high + MARGIN
    return ALIKE if inside else UNDECIDED


def _narrowed(one: Interval, factor: float) -> Interval:
    low, high = one.value - (one.value - one.low) / factor, one.value + (one.high - one.value) / factor
    return replace(one, low=low, high=high)


def _shown(one: Interval) -> str:
    return f"AUC {one.value:.3f}, {one.low:.3f} to {one.high:.3f}"
