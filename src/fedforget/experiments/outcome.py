"""Outcome: what one way to recover costs and how good the model is after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedforget.server.unlearning.receipt import Receipt

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Accuracy:
    """The metrics of those who stay, in both protocols."""

    sampled: Metrics
    full: Metrics

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"sampled": dict(self.sampled), "full": dict(self.full)}


#: The accuracy after some rounds, in their order.
Curve = Sequence[tuple[int, Accuracy]]


@dataclass(frozen=True)
class Outcome:
    """One way's result.

    ``seconds`` is the wall clock of unlearning, without any evaluation; ``speedup`` is Retrain's seconds over these,
    None where nothing is done or Retrain is not there to compare with. Log sizes are of the log that the method runs
    on: see ``log_bytes_per_device``.
    """

    seconds: float
    speedup: float | None
    accuracy: Accuracy
    log_bytes_per_device: float
    log_share_of_item_table: float
    receipt: Receipt | None = field(default=None, compare=False)
    curve: Curve = ()

    def against(self, reference: Outcome | None) -> Outcome:
        """The same, with its speed-up over a reference."""
        if reference is None or not self.seconds:
            return replace(self, speedup=None)
        return replace(self, speedup=reference.seconds / self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON: no receipt, no curve."""
        return {
            "seconds": self.seconds,
            "speedup": self.speedup,
            **self.accuracy.to_dict(),
            "log_bytes_per_device": self.log_bytes_per_device,
            "log_share_of_item_table": self.log_share_of_item_table,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], curve: Curve = ()) -> Outcome:
        """What ``to_dict`` gave."""
        rest = {name: value for name, value in values.items() if name not in ("sampled", "full")}
        return cls(accuracy=Accuracy(values["sampled"], values["full"]), curve=curve, **rest)
