"""Comparison: the outcomes of every way in one setting, as a table, a report or a file shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedforget.experiments.outcome import Accuracy, Outcome


@dataclass(frozen=True)
class Comparison:
    """What was compared, on what, and how it came out.

    ``setting`` is everything that decides the accuracy, ``machine`` what decides the seconds. ``popular`` is what the
    most popular items reach, the least that a recommender should. ``ials`` are outcomes of Fed-iALS in the same
    setting, where they were asked for.
    """

    setting: Mapping[str, Any]
    machine: Mapping[str, Any]
    outcomes: Mapping[str, Outcome]
    popular: Accuracy
    ials: Mapping[str, Outcome] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, with the curves beside the methods."""
        return {
            "setting": dict(self.setting),
            "machine": dict(self.machine),
            "methods": {name: outcome.to_dict() for name, outcome in self.outcomes.items()},
            "most popular": self.popular.to_dict(),
            "ials": {name: outcome.to_dict() for name, outcome in self.ials.items()},
            "curves": {
                name: [{"round": round_, **accuracy.to_dict()} for round_, accuracy in outcome.curve]
                for name, outcome in self.outcomes.items()
                if outcome.curve
            },
        }

    def to_json(self) -> str:
        """As a file keeps it."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """Read back what ``to_json`` wrote."""
        values = json.loads(text)
        curves = {
            name: [(point["round"], _accuracy(point)) for point in points] for name, points in values["curves"].items()
        }
        outcomes = {name: Outcome.from_dict(row, curves.get(name, ())) for name, row in values["methods"].items()}
        ials = {name: Outcome.from_dict(row) for name, row in values.get("ials", {}).items()}
        return cls(values["setting"], values["machine"], outcomes, _accuracy(values["most popular"]), ials)


def _accuracy(values: Mapping[str, Any]) -> Accuracy:
    return Accuracy(values["sampled"], values["full"])
