"""``audit``: train worlds, attack them, compare methods with Retrain, and write the result to a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedforget.data import Interactions
from fedforget.evaluation.forgetting.verdict import ORDER, VISIBLE, Verdict, shown
from fedforget.experiments import machine
from fedforget.experiments.forgetting.analysis import BEFORE_AFTER, MEMBERSHIP, SNAPSHOTS, CaseResult
from fedforget.experiments.forgetting.cases import ATTACKED, CASES
from fedforget.experiments.forgetting.comparison import between_seeds, compare_models, poison_left
from fedforget.experiments.forgetting.methods import DEFAULT, NONE, RETRAIN, audited_methods
from fedforget.experiments.forgetting.settings import AuditSettings, World
from fedforget.experiments.forgetting.worlds import OnWorld, Outcome, Worlds
from fedforget.models import Recommender
from fedforget.runtime.files import write_file
from fedforget.server.presets import ROUNDS, configure
from fedforget.server.run_config import RunConfig
from fedforget.version import __version__

#: The result as it is printed, and everything that was found.
RESULT, DETAILS, PAGE = "audit.json", "details.json", "audit.html"
#: Attackers in words.
ATTACKERS = {MEMBERSHIP: "final model", SNAPSHOTS: "snapshots of all rounds"}
#: So many deviations between seeds from Retrain's accuracy are named in a verdict.
WORSE = 4.0


@dataclass(frozen=True)
class Audit:
    """The result of an audit, by case. ``source`` names the data."""

    settings: AuditSettings
    cases: dict[str, CaseResult]
    outcomes: dict[str, list[Outcome]]
    source: str = ""

    @property
    def headline(self) -> CaseResult:
        """The case of who leaves in which members are seen best before the erasure."""
        return max(self.cases.values(), key=lambda case: (not case.few, case.before.low))

    def worst_case(self, name: str) -> CaseResult:
        """The case that is worst for a method; for the model before and for Retrain themselves the headline.

        A case with few candidates, such as a single user, counts only if the method is visible in it: hardly any number
        of worlds shows that it is not.
        """
        if name in (NONE, RETRAIN):
            return self.headline
        order = [self.headline, *(case for case in self.cases.values() if case is not self.headline)]
        decides = [case for case in order if not case.few or case.worst(name)[1].kind == VISIBLE]
        return max(decides or order, key=lambda case: ORDER.index(case.worst(name)[1].kind))

    def verdict(self, name: str) -> Verdict:
        """The verdict on a method: the worst of all cases and attackers, and in short that of the others."""
        case = self.worst_case(name)
        attack, verdict = case.worst(name)
        where = f"{CASES[case.name].label}, {ATTACKERS[attack]}"
        if name == RETRAIN:
            found = shown(case.found[name][MEMBERSHIP].auc)
            return Verdict(verdict.kind, f"the reference; {CASES[case.name].label}: AUC {found}, chance is 0.5")
        others = [one for one in self.cases.values() if one is not case]
        rest = [f"{CASES[one.name].label}: {one.worst(name)[1].kind}" for one in others] if name != NONE else []
        worse = [] if name == NONE else self._accuracy_notes(name)
        return Verdict(verdict.kind, "; ".join([f"{where}: {verdict.text}", *rest, *worse]), verdict.worlds)

    def _accuracy_notes(self, name: str) -> list[str]:
        """That a method recommends otherwise than Retrain, by more than ``WORSE`` deviations between seeds."""
        found = self.distance(self.headline.name, name)["accuracy"]["all"]
        apart, spread = found["full_ndcg_minus_retrain"], found["full_ndcg_between_seeds"]
        if abs(apart) <= WORSE * max(spread, 1e-3):
            return []
        return [f"full NDCG@10 of those who stay is {100 * apart:+.1f} points from Retrain's"]

    def distance(self, case: str, name: str) -> dict[str, Any]:
        """The distance of a method to Retrain in a case, and what it leaves of malicious users' push."""
        found = compare_models(self.outcomes[case], name, self.settings.suspects(case).popularity)
        found["between_seeds"] = self._between_seeds[case]
        if self._poison:
            found["poison"] = self._poison[name]
        return found

    @cached_property
    def _between_seeds(self) -> dict[str, dict[str, float]]:
        return {case: between_seeds(outcomes) for case, outcomes in self.outcomes.items()}

    @cached_property
    def _poison(self) -> dict[str, dict[str, float]]:
        return poison_left(self.outcomes.get("malicious", []), tuple(self.settings.methods))

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values: the figures of each method in the case that is worst for it."""
        methods: dict[str, dict[str, Any]] = {}
        for name in self.settings.methods:
            case, verdict = self.worst_case(name), self.verdict(name)
            found = {kind: one.to_dict() for kind, one in case.found[name].items()}
            distance = self.distance(case.name, name)
            smallest = case.found[name][MEMBERSHIP].scores.smallest_rate
            methods[name] = {BEFORE_AFTER: None, **found, "smallest_rate": smallest, "distance": distance}
            methods[name] |= {"case": case.name, "verdict": verdict.text, "kind": verdict.kind}
        return {"methods": methods, "worlds": self.settings.worlds, "leavers": self.settings.leavers}

    def details(self) -> dict[str, Any]:
        """Everything that was found, by case, with settings, data and versions."""
        cases = {}
        for name, case in self.cases.items():
            methods = {
                method: {**case.details(method), "distance": self.distance(name, method)}
                for method in self.settings.methods
            }
            shape = {"worlds": case.worlds, "candidates": int(case.inside.shape[1])}
            cases[name] = {"leavers": CASES[name].description, **shape, "methods": methods}
        train = self.settings.train
        data = {"source": self.source, "digest": train.digest, "users": train.n_users, "items": train.n_items}
        described = {"digest": self.settings.digest, **self.settings.describe()}
        versions = {"version": __version__, "machine": machine.describe()}
        verdicts = {method: self.verdict(method) for method in self.settings.methods}
        found = {
            "headline": self.headline.name,
            "worlds": self.settings.worlds,
            "data": data,
            "verdicts": {method: verdict.text for method, verdict in verdicts.items()},
            "verdict_kinds": {method: verdict.kind for method, verdict in verdicts.items()},
            "cases": cases,
        }
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        return {**found, "settings": described, **versions, "finished": finished}

    def save(self, folder: Path) -> None:
        """Write the result, the details and the page to a folder."""
        from fedforget.experiments.forgetting.page import audit_page

        for name, value in ((RESULT, self.to_dict()), (DETAILS, self.details())):
            write_file(folder / name, json.dumps(value, indent=2).encode(), private=False)
        write_file(folder / PAGE, audit_page(self).encode(), private=False)

    def __str__(self) -> str:
        lines = [f"{name}: {self.verdict(name).text}" for name in self.settings.methods]
        return "\n".join([f"Headline: {CASES[self.headline.name].label}", *lines])


def audit(
    data: Interactions,
    model: Recommender | RunConfig | str = "lightgcn",
    *,
    methods: Sequence[str] = DEFAULT,
    worlds: int = 32,
    leavers: float = 0.05,
    seed: int = 0,
    out: str | Path | None = None,
    cases: Sequence[str] = tuple(CASES),
    rounds: int = ROUNDS,
    workers: int | None = None,
    source: str = "",
    on_world: OnWorld = lambda done, total: None,
) -> Audit:
    """Audit forgetting: can an attacker tell users who were forgotten from users who never took part?

    Trains ``worlds`` federations for each case of who leaves (``cases``), each with a random half of some candidates,
    forgets that half by each of the ``methods`` and by Retrain, and attacks all models (``evaluation.forgetting``).
    ``leavers`` is the share of users who leave. With ``out`` the worlds and the result are stored in that folder, and
    the same call continues after an interruption. ``workers`` worlds are trained at a time, each on one core.
    ``source`` names the data in the result.
    """
    config = model if isinstance(model, RunConfig) else configure(model)
    train, test = data.split(test=0.2, seed=seed)
    chosen = audited_methods(methods, config.model)
    settings = AuditSettings(train, test, config, chosen, tuple(cases), worlds, leavers, rounds, seed)
    if out is None:
        with TemporaryDirectory() as folder:
            return _run(Worlds(Path(folder), settings), on_world, workers, source)
    result = _run(Worlds(Path(out), settings), on_world, workers, source)
    result.save(Path(out))
    return result


def _run(worlds: Worlds, on_world: OnWorld, workers: int | None, source: str) -> Audit:
    worlds.train(on_world, workers)
    settings = worlds.settings
    outcomes = {
        case: [worlds.load(World(case, number)) for number in range(settings.worlds_of(case))]
        for case in settings.cases
    }
    attacked = [case for case in settings.cases if case in ATTACKED]
    methods, seed = tuple(settings.methods), settings.seed
    results = {case: CaseResult(case, outcomes[case], methods, seed, len(attacked)) for case in attacked}
    return Audit(settings, results, outcomes, source)


__all__ = ["DEFAULT", "NONE", "RETRAIN", "Audit", "audit"]
