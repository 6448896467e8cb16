"""Analysis: what attackers see in the worlds of an audit, by case, method and attacker, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.evaluation.forgetting.attacks import likelihood_ratio, offline_ratio
from fedforget.evaluation.forgetting.intervals import LEAST_USERS, Interval, difference, interval
from fedforget.evaluation.forgetting.scores import Flags, Floats, Ints, Scores, auc, tpr_at
from fedforget.evaluation.forgetting.verdict import UNDECIDED, VISIBLE, Verdict, judge, worst
from fedforget.experiments.forgetting.methods import NONE, RETRAIN
from fedforget.experiments.forgetting.world import SIGNALS
from fedforget.experiments.forgetting.worlds import Outcome

#: Worlds are attacked in so many parts, each with an attack fitted on all others.
FOLDS = 4
#: The false-positive rate at which the true-positive rate is reported.
RATE = 0.01
#: What an attacker has: the final model; the snapshots of all rounds too; the models before and after the erasure.
MEMBERSHIP, SNAPSHOTS, BEFORE_AFTER = "membership", "snapshots", "before_after"
#: The offline attack on the final model, RMIA, beside the likelihood ratio.
OFFLINE = "offline_rmia"
_FINAL = ("fit", "half", "cohesion", "length")
_CHANGED = ("changed cohesion", "changed length")
_SIGNALS = {
    MEMBERSHIP: _FINAL,
    SNAPSHOTS: (*_FINAL, "early fit", "mean step", "largest steps"),
    BEFORE_AFTER: ("fit", "cohesion", "before fit", "before cohesion", *_CHANGED),
}
#: The attackers that decide the verdict. Before and after together show who left, also if Retrain is the method.
DECIDING = (MEMBERSHIP, SNAPSHOTS)


@dataclass(frozen=True)
class Found:
    """What an attack found: AUC, and the true-positive rate at ``RATE`` if the scores can resolve so low a rate."""

    auc: Interval
    tpr: Interval | None
    scores: Scores

    def to_dict(self) -> dict[str, float | None]:
        """The figures as in the result of an audit."""
        rate = None if self.tpr is None else self.tpr.value
        return {"auc": self.auc.value, "low": self.auc.low, "high": self.auc.high, "tpr_at_1_percent": rate}

    def details(self) -> dict[str, float | None]:
        """Further figures: the interval of the true-positive rate, and the smallest rate that can be resolved."""
        rate = {} if self.tpr is None else {"tpr_low": self.tpr.low, "tpr_high": self.tpr.high}
        return {**self.to_dict(), **rate, "smallest_rate": self.scores.smallest_rate}


class CaseResult:
    """The worlds of one case: attacks on every method, and verdicts.

    ``apart`` is the difference of each method's AUC to Retrain's. ``broken`` counts the worlds in which a method left a
    model with signals that are no finite numbers, which are left out when it is judged. ``cases`` is the number of
    cases that are judged together.
    """

    def __init__(
        self, name: str, outcomes: Sequence[Outcome], methods: Sequence[str], seed: int, cases: int = 1
    ) -> None:
        self.name, self.worlds, self.seed, self.tests = name, len(outcomes), seed, cases * len(DECIDING)
        self.inside: Flags = np.stack([outcome.arrays["inside"] for outcome in outcomes])
        self.groups: Ints = np.arange(self.worlds) // 2
        self.folds: Ints = self.groups % FOLDS
        self._kinds = {method: self._signals(outcomes, method) for method in methods}
        usable = {method: _usable(kinds) for method, kinds in self._kinds.items()}
        both: Flags = usable[NONE] & usable[RETRAIN]
        self.broken = {method: int((both & ~table).any(1).sum()) for method, table in usable.items()}
        self.found = {method: self._attacks(method, both & usable[method]) for method in methods}
        self._references = {
            method: {name: self._attacks(name, both & usable[method]) for name in (NONE, RETRAIN)}
            for method, broken in self.broken.items()
            if broken
        }
        self.apart = {method: {attack: self._apart(method, attack) for attack in DECIDING} for method in methods}
        self.verdicts = {method: {attack: self._verdict(method, attack) for attack in DECIDING} for method in methods}

    @property
    def few(self) -> bool:
        """Whether there are so few candidates that no number of worlds one would train shows that nothing is left."""
        return int(self.inside.shape[1]) < LEAST_USERS

    @property
    def before(self) -> Interval:
        """How well members are seen in the final model if nothing is forgotten."""
        return self.found[NONE][MEMBERSHIP].auc

    def worst(self, method: str) -> tuple[str, Verdict]:
        """The attack with the worst verdict on a method, and that verdict."""
        verdict = worst(self.verdicts[method].values())
        return next(attack for attack, one in self.verdicts[method].items() if one == verdict), verdict

    def _signals(self, outcomes: Sequence[Outcome], name: str) -> dict[str, Floats]:
        """The signals after a method by kind (worlds, users); ``before …`` are those of the model before it."""
        after, before = (np.stack([o.arrays[f"signals/{one}"] for o in outcomes]) for one in (name, NONE))
        kinds = {kind: after[..., place].astype(np.float64) for place, kind in enumerate(SIGNALS)}
        return kinds | {f"before {kind}": before[..., place].astype(float) for place, kind in enumerate(SIGNALS)}

    def _attacks(self, method: str, where: Flags) -> dict[str, Found]:
        """All attacks on a method, on users in worlds ``where`` their signals are to be used."""
        found = {
            attack: self._found(likelihood_ratio(self._stack(method, kinds, where), self.inside, self.folds))
            for attack, kinds in _SIGNALS.items()
            if (method, attack) != (NONE, BEFORE_AFTER)
        }
        likelihood = np.where(where, self._kinds[method]["likelihood"], np.nan)
        return {**found, OFFLINE: self._found(offline_ratio(likelihood, self.inside, self.folds))}

    def _stack(self, method: str, kinds: Sequence[str], where: Flags) -> Floats:
        return np.where(where[..., None], np.stack([self._kinds[method][kind] for kind in kinds], axis=2), np.nan)

    def _found(self, table: Floats) -> Found:
        scores = Scores.of(table, self.inside, self.groups, self.folds)
        rate = None
        if scores.smallest_rate <= RATE:
            rate = interval(scores, lambda some, weights: tpr_at(some, RATE, weights), self.seed)
        return Found(interval(scores, auc, self.seed), rate, scores)

    def _reference(self, name: str, method: str, attack: str) -> Found:
        """An attack on the model before, or on Retrain, in the worlds in which a method's models can be used."""
        return self._references.get(method, self.found)[name][attack]

    def _apart(self, method: str, attack: str) -> Interval:
        retrain = self._reference(RETRAIN, method, attack)
        return difference(self.found[method][attack].scores, retrain.scores, auc, self.seed)

    def _verdict(self, method: str, attack: str) -> Verdict:
        before, retrain = (self._reference(name, method, attack).auc for name in (NONE, RETRAIN))
        verdict = judge(before, retrain, self.apart[method][attack], self.worlds, self.tests)
        if self.broken[method] and verdict.kind != VISIBLE:
            text = f"undecided: {self.broken[method]} of {self.worlds} models have numbers that are not finite"
            return Verdict(UNDECIDED, text)
        return verdict

    def details(self, method: str) -> dict[str, object]:
        """Everything found about a method in this case, as plain values."""
        return {
            **{attack: found.details() for attack, found in self.found[method].items()},
            "against_retrain": {attack: apart.to_dict() for attack, apart in self.apart[method].items()},
            "verdicts": {attack: verdict.text for attack, verdict in self.verdicts[method].items()},
            "not_finite": self.broken[method],
        }


def _usable(signals: Mapping[str, Floats]) -> Flags:
    """Where all signals of a user in a world are finite numbers."""
    return np.asarray(np.isfinite(np.stack(list(signals.values()))).all(axis=0))
