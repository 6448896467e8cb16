"""``audit``: train worlds, attack them, compare methods with Retrain, and write the result to a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedforget.data import Interactions
from fedforget.evaluation.forgetting.verdict import ALIKE, BIASED, BLIND, UNDECIDED, VISIBLE, Verdict
from fedforget.experiments import machine
from fedforget.experiments.forgetting.analysis import BEFORE_AFTER, DECIDING, CaseResult
from fedforget.experiments.forgetting.cases import ATTACKED, CASES
from fedforget.experiments.forgetting.comparison import compare_models, poison_left
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


@dataclass(frozen=True)
class Audit:
    """The result of an audit, by case. The ``headline`` is the case in which members are seen best beforehand."""

    settings: AuditSettings
    cases: dict[str, CaseResult]
    outcomes: dict[str, list[Outcome]]

    @property
    def headline(self) -> CaseResult:
        """The worst case of who leaves."""
        return max(self.cases.values(), key=lambda case: case.before.low)

    def verdict(self, name: str) -> Verdict:
        """The verdict on a method: visible if it is in any case, to any attacker; else that of the headline."""
        visible = [
            (case.name, kind, verdict)
            for case in (self.headline, *self.cases.values())
            for kind, verdict in case.verdicts[name].items()
            if verdict.kind == VISIBLE
        ]
        if visible:
            case_name, kind, verdict = visible[0]
            return Verdict(verdict.kind, f"{self._where(case_name, kind)}: {verdict.text}")
        own = self.headline.verdicts[name]
        kind = max(DECIDING, key=lambda kind: _ORDER.index(own[kind].kind))
        return Verdict(own[kind].kind, f"{self._where(self.headline.name, kind)}: {own[kind].text}", own[kind].worlds)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values: the headline's figures of each method."""
        methods = {}
        for name in self.settings.methods:
            found = {kind: one.to_dict() for kind, one in self.headline.found[name].items()}
            distance = compare_models(self.outcomes[self.headline.name], name)
            if "malicious" in self.outcomes:
                distance["poison"] = poison_left(self.outcomes["malicious"], name)
            verdict = self.verdict(name).text
            methods[name] = {BEFORE_AFTER: None, **found, "distance": distance, "verdict": verdict}
        return {"methods": methods, "worlds": self.settings.worlds, "leavers": self.settings.leavers}

    def details(self) -> dict[str, Any]:
        """Everything that was found, by case, with settings and versions."""
        cases = {}
        for name, case in self.cases.items():
            methods = {
                method: {**case.details(method), "distance": compare_models(self.outcomes[name], method)}
                for method in self.settings.methods
            }
            shape = {"worlds": case.worlds, "candidates": int(case.inside.shape[1])}
            cases[name] = {"leavers": CASES[name].description, **shape, "methods": methods}
        described = {"digest": self.settings.digest, **self.settings.describe()}
        versions = {"version": __version__, "machine": machine.describe()}
        verdicts = {method: self.verdict(method).text for method in self.settings.methods}
        found = {"headline": self.headline.name, "verdicts": verdicts, "cases": cases}
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        return {**found, "settings": described, **versions, "finished": finished}

    def save(self, folder: Path) -> None:
        """Write the result, the details and the page to a folder."""
        from fedforget.experiments.forgetting.page import audit_page

        for name, value in ((RESULT, self.to_dict()), (DETAILS, self.details())):
            write_file(folder / name, json.dumps(value, indent=2).encode(), private=False)
        write_file(folder / PAGE, audit_page(self).encode(), private=False)

    def _where(self, case: str, kind: str) -> str:
        return f"{CASES[case].label}, {kind}"

    def __str__(self) -> str:
        lines = [f"{name}: {self.verdict(name).text}" for name in self.settings.methods]
        return "\n".join([f"Headline: {CASES[self.headline.name].label}", *lines])


#: Kinds of verdicts by which of two counts for a method that is visible nowhere.
_ORDER = [ALIKE, UNDECIDED, BIASED, BLIND, VISIBLE]


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
    on_world: OnWorld = lambda done, total: None,
) -> Audit:
    """Audit forgetting: can an attacker tell users who were forgotten from users who never took part?

    Trains ``worlds`` federations for each case of who leaves (``cases``), each with a random half of some candidates,
    forgets that half by each of the ``methods`` and by Retrain, and attacks all models (``evaluation.forgetting``).
    ``leavers`` is the share of users who leave. With ``out`` the worlds and the result are stored in that folder, and
    the same call continues after an interruption. ``workers`` worlds are trained at a time, each on one core.
    """
    config = model if isinstance(model, RunConfig) else configure(model)
    train, test = data.split(test=0.2, seed=seed)
    chosen = audited_methods(methods, config.model)
    settings = AuditSettings(train, test, config, chosen, tuple(cases), worlds, leavers, rounds, seed)
    if out is None:
        with TemporaryDirectory() as folder:
            return _run(Worlds(Path(folder), settings), on_world, workers)
    result = _run(Worlds(Path(out), settings), on_world, workers)
    result.save(Path(out))
    return result


def _run(worlds: Worlds, on_world: OnWorld, workers: int | None) -> Audit:
    worlds.train(on_world, workers)
    settings = worlds.settings
    outcomes = {
        case: [worlds.load(World(case, number)) for number in range(settings.worlds_of(case))]
        for case in settings.cases
    }
    results = {
        case: CaseResult(case, outcomes[case], tuple(settings.methods), settings.seed)
        for case in settings.cases
        if case in ATTACKED
    }
    return Audit(settings, results, outcomes)


__all__ = ["DEFAULT", "NONE", "RETRAIN", "Audit", "audit"]
