"""Analysis: what attackers see in the worlds of an audit, by case, method and attacker, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.evaluation.forgetting.attacks import likelihood_ratio, offline_ratio
from fedforget.evaluation.forgetting.intervals import Interval, interval
from fedforget.evaluation.forgetting.scores import Flags, Floats, Ints, Scores, auc, tpr_at
from fedforget.evaluation.forgetting.verdict import Verdict, judge
from fedforget.experiments.forgetting.methods import NONE, RETRAIN
from fedforget.experiments.forgetting.world import SIGNALS
from fedforget.experiments.forgetting.worlds import Outcome

#: Worlds are attacked in so many parts, each with an attack fitted on all others.
FOLDS = 4
#: The false-positive rate at which the true-positive rate is reported.
RATE = 0.01
#: What an attacker has: the final model; the snapshots of all rounds too; the models before and after the erasure.
MEMBERSHIP, SNAPSHOTS, BEFORE_AFTER = "membership", "snapshots", "before_after"
_FINAL = ("fit", "half", "cohesion", "length")
_CHANGED = ("changed cohesion", "changed length")
#: The attackers that decide the verdict. Before and after together show who left, also if Retrain is the method.
DECIDING = (MEMBERSHIP, SNAPSHOTS)


@dataclass(frozen=True)
class Found:
    """What an attack found: AUC, true-positive rate at ``RATE``, and the scores they come from."""

    auc: Interval
    tpr: Interval
    scores: Scores

    def to_dict(self) -> dict[str, float]:
        """The figures as in the result of an audit."""
        area = {"auc": self.auc.value, "low": self.auc.low, "high": self.auc.high}
        return {**area, "tpr_at_1_percent": self.tpr.value}

    def details(self) -> dict[str, float]:
        """Further figures: the interval of the true-positive rate, and the smallest rate that can be resolved."""
        rate = {"tpr_low": self.tpr.low, "tpr_high": self.tpr.high}
        return {**self.to_dict(), **rate, "smallest_rate": self.scores.smallest_rate}


class CaseResult:
    """The worlds of one case: attacks on every method, and verdicts."""

    def __init__(self, name: str, outcomes: Sequence[Outcome], methods: Sequence[str], seed: int) -> None:
        self.name, self.worlds, self.seed = name, len(outcomes), seed
        self.inside: Flags = np.stack([outcome.arrays["inside"] for outcome in outcomes])
        self.groups: Ints = np.arange(self.worlds) // 2
        self.folds: Ints = self.groups % FOLDS
        self.found = {name: self._attacks(self._signals(outcomes, name), name) for name in methods}
        self.offline = {name: self._offline(self._signals(outcomes, name)["likelihood"]) for name in methods}
        self.verdicts = {name: {kind: self._verdict(name, kind) for kind in DECIDING} for name in methods}

    @property
    def before(self) -> Interval:
        """How well members are seen in the final model if nothing is forgotten."""
        return self.found[NONE][MEMBERSHIP].auc

    def _signals(self, outcomes: Sequence[Outcome], name: str) -> dict[str, Floats]:
        """The signals after a method by kind (worlds, users); ``before …`` are those of the model before it."""
        after, before = (np.stack([o.arrays[f"signals/{one}"] for o in outcomes]) for one in (name, NONE))
        kinds = {kind: after[..., place].astype(np.float64) for place, kind in enumerate(SIGNALS)}
        return kinds | {f"before {kind}": before[..., place].astype(float) for place, kind in enumerate(SIGNALS)}

    def _attacks(self, signals: Mapping[str, Floats], name: str) -> dict[str, Found]:
        attacks = {MEMBERSHIP: _FINAL, SNAPSHOTS: (*_FINAL, "early fit", "mean step", "largest steps")}
        if name != NONE:
            both = ("fit", "cohesion", "before fit", "before cohesion")
            attacks[BEFORE_AFTER] = (*both, *_CHANGED)
        return {attack: self._found(self._combined(signals, kinds)) for attack, kinds in attacks.items()}

    def _combined(self, signals: Mapping[str, Floats], kinds: Sequence[str]) -> Floats:
        return likelihood_ratio(np.stack([signals[kind] for kind in kinds], axis=2), self.inside, self.folds)

    def _offline(self, likelihood: Floats) -> Found:
        return self._found(offline_ratio(likelihood, self.inside, self.folds))

    def _found(self, table: Floats) -> Found:
        scores = Scores.of(table, self.inside, self.groups, self.folds)
        rate = interval(scores, lambda some, weights: tpr_at(some, RATE, weights), self.seed)
        return Found(interval(scores, auc, self.seed), rate, scores)

    def _verdict(self, name: str, attack: str) -> Verdict:
        before, method, retrain = (self.found[one][attack].auc for one in (NONE, name, RETRAIN))
        return judge(name, before, method, retrain, self.worlds)

    def details(self, name: str) -> dict[str, object]:
        """Everything found about a method in this case, as plain values."""
        return {
            **{attack: found.details() for attack, found in self.found[name].items()},
            "offline_rmia": self.offline[name].details(),
            "verdicts": {attack: verdict.text for attack, verdict in self.verdicts[name].items()},
        }
