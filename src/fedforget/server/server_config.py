"""ServerConfig: how the server runs its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedforget.errors import ConfigError
from fedforget.runtime.components import ComponentField
from fedforget.server.aggregation import AGGREGATIONS, AggregationRule
from fedforget.server.optimiser import OPTIMISERS, Optimiser


@dataclass(frozen=True)
class ServerConfig:
    """The fraction of clients in a round, how their updates are combined and applied, which snapshots are kept.

    ``aggregation`` and ``optimiser`` are objects or their names. With ``snapshot_every=n`` every n-th snapshot is kept.
    """

    fraction: float = 0.1
    aggregation: ComponentField[AggregationRule] = ComponentField(AGGREGATIONS, "mean")
    snapshot_every: int = 1
    optimiser: ComponentField[Optimiser] = ComponentField(OPTIMISERS, "sgd")

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction is {self.fraction}.", "Give the fraction of clients: above 0, at most 1.")
        if self.snapshot_every < 1:
            raise ConfigError(f"snapshot_every is {self.snapshot_every}.", "Give 1 to keep every snapshot, or more.")

    def to_dict(self) -> dict[str, Any]:
        return {
            "fraction": self.fraction,
            "aggregation": self.aggregation.spec(),
            "snapshot_every": self.snapshot_every,
            "optimiser": self.optimiser.settings(),
        }
