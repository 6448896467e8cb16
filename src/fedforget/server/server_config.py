"""ServerConfig: how the server runs its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedforget.errors import ConfigError
from fedforget.protocol.training import SMALLEST_SUM
from fedforget.runtime.components import ComponentField
from fedforget.server.aggregation import AGGREGATIONS, AggregationRule
from fedforget.server.optimiser import OPTIMISERS, Optimiser


@dataclass(frozen=True)
class ServerConfig:
    """The fraction of clients in a round, how their updates are combined and applied, which snapshots are kept.

    ``aggregation`` and ``optimiser`` are objects or their names. With ``snapshot_every=n`` every n-th snapshot is kept.

    With ``secure`` the server learns the sum of a cohort's updates and no single one (secure aggregation). Devices
    refuse sums over fewer than ``minimum`` devices, and an erasure leaves out as many of an affected round
    (``unlearning.cover``); a round is drawn with at least three times as many, if there are that many users.
    """

    fraction: float = 0.1
    aggregation: ComponentField[AggregationRule] = ComponentField(AGGREGATIONS, "mean")
    snapshot_every: int = 1
    optimiser: ComponentField[Optimiser] = ComponentField(OPTIMISERS, "sgd")
    secure: bool = False
    minimum: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction is {self.fraction}.", "Give the fraction of clients: above 0, at most 1.")
        if self.snapshot_every < 1:
            raise ConfigError(f"snapshot_every is {self.snapshot_every}.", "Give 1 to keep every snapshot, or more.")
        if self.minimum < SMALLEST_SUM:
            raise ConfigError(
                f"minimum is {self.minimum}.", f"Give the fewest devices in a sum, {SMALLEST_SUM} or more."
            )
        if self.secure and not self.aggregation.works_on_sums:
            raise ConfigError(
                f"aggregation is {self.aggregation.name!r} with secure aggregation.",
                "It needs single updates. Use 'mean', 'touched' or 'root', or server.secure=false.",
            )

    @property
    def smallest_sum(self) -> int:
        """The fewest devices in a sum with secure aggregation; 0 with plain updates."""
        return self.minimum if self.secure else 0

    @property
    def smallest_cohort(self) -> int:
        """The number of users to draw for a round, if there are as many: room for absent and left-out devices."""
        return max(3 * self.smallest_sum, 1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "fraction": self.fraction,
            "aggregation": self.aggregation.spec(),
            "snapshot_every": self.snapshot_every,
            "optimiser": self.optimiser.settings(),
            **({"secure": True, "minimum": self.minimum} if self.secure else {}),
        }
