"""Outcome: what one way to recover costs and how good the model is after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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


@dataclass(frozen=True)
class LogSize:
    """What the devices of a federation keep for unlearning, in mean bytes a device.

    ``total`` is everything; ``rows`` of it are item rows (or their lengths), ``dense`` the other public tensors.
    ``formula`` is what the paper's storage analysis gives for the same devices and participations, item rows only.
    ``item_table`` is the item embeddings in float32, which any device has to receive anyway.
    """

    total: float
    rows: float
    dense: float
    formula: float
    item_table: float

    @property
    def share(self) -> float:
        """All of it as a share of the item table."""
        return self.total / self.item_table


#: The accuracy after some rounds, in their order.
Curve = Sequence[tuple[int, Accuracy]]


@dataclass(frozen=True)
class Outcome:
    """One way's result.

    ``seconds`` is the wall clock of unlearning, without any evaluation; ``speedup`` is Retrain's seconds over these,
    None where nothing is done or Retrain is not there to compare with. ``log`` is the log that the method runs on.
    ``communication_rounds`` is how often devices were asked; None where it is not known.
    """

    seconds: float
    speedup: float | None
    accuracy: Accuracy
    log: LogSize
    receipt: Receipt | None = field(default=None, compare=False)
    curve: Curve = ()
    communication_rounds: int | None = None

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
            "communication_rounds": self.communication_rounds,
            **self.accuracy.to_dict(),
            "log": asdict(self.log),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], curve: Curve = ()) -> Outcome:
        """What ``to_dict`` gave."""
        return cls(
            values["seconds"],
            values["speedup"],
            Accuracy(values["sampled"], values["full"]),
            LogSize(**values["log"]),
            curve=curve,
            communication_rounds=values.get("communication_rounds"),
        )
