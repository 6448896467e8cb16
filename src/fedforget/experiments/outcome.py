"""Outcome: cost and accuracy of one unlearning variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedforget.server.unlearning.receipt import Receipt


@dataclass(frozen=True)
class Accuracy:
    """Metrics of the remaining users in both protocols."""

    sampled: Mapping[str, float]
    full: Mapping[str, float]


@dataclass(frozen=True)
class LogSize:
    """Mean size of the unlearning log in bytes per device.

    ``rows`` are the item rows (or their norms), ``dense`` the other public tensors, ``formula`` the size of the item
    rows by the paper's formula, and ``item_table`` the item embeddings in float32.
    """

    total: float
    rows: float
    dense: float
    formula: float
    item_table: float


#: Accuracy by round.
Curve = Sequence[tuple[int, Accuracy]]


@dataclass(frozen=True)
class Outcome:
    """The result of one variant.

    ``seconds`` is the wall time of unlearning without evaluation. ``speedup`` is relative to Retrain; None if nothing
    was unlearned or Retrain was not measured.
    """

    seconds: float
    speedup: float | None
    accuracy: Accuracy
    log: LogSize
    receipt: Receipt | None = field(default=None, compare=False)
    curve: Curve = ()
    communication_rounds: int | None = 0

    def relative_to(self, reference: Outcome | None) -> Outcome:
        """The same outcome with its speed-up over a reference."""
        speedup = reference.seconds / self.seconds if reference is not None and self.seconds else None
        return replace(self, speedup=speedup)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, without receipt and curve."""
        return {
            "seconds": self.seconds,
            "speedup": self.speedup,
            "communication_rounds": self.communication_rounds,
            **asdict(self.accuracy),
            "log": asdict(self.log),
        }

    def curve_dicts(self) -> list[dict[str, Any]]:
        """The curve as plain values."""
        return [{"round": round_, **asdict(accuracy)} for round_, accuracy in self.curve]
