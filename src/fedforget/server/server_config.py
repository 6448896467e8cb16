"""ServerConfig: how the server runs its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedforget.errors import ConfigError
from fedforget.models import GlobalParameters
from fedforget.protocol.updates import Updates
from fedforget.server.aggregation import AGGREGATIONS, AggregationRule, Step
from fedforget.server.optimiser import OPTIMISERS, Optimiser
from fedforget.server.state import ServerState


@dataclass(frozen=True)
class ServerConfig:
    """The fraction of clients in a round, how their updates are combined and applied, which snapshots are kept.

    ``aggregation`` and ``optimiser`` are objects or their names. ``snapshot_every`` keeps every so-many-th snapshot.
    """

    fraction: float = 0.1
    aggregation: AggregationRule | str = "mean"
    snapshot_every: int = 1
    optimiser: Optimiser | str = "sgd"

    def __post_init__(self) -> None:
        object.__setattr__(self, "aggregation", AGGREGATIONS.build(self.aggregation))
        object.__setattr__(self, "optimiser", OPTIMISERS.build(self.optimiser))
        if not 0 < self.fraction <= 1:
            raise ConfigError(
                f"fraction is {self.fraction}.", "Give the share of clients in a round: above 0, at most 1."
            )
        if self.snapshot_every < 1:
            raise ConfigError(f"snapshot_every is {self.snapshot_every}.", "Give 1 to keep every snapshot, or more.")

    @property
    def averages(self) -> bool:
        """Whether the step of an item row shrinks with the clients of the cohort that did not touch it."""
        return AGGREGATIONS.build(self.aggregation).averages

    def combine(self, updates: Updates, public: GlobalParameters) -> Step:
        """The combined update of a cohort."""
        return AGGREGATIONS.build(self.aggregation).combine(updates, public)

    def apply(self, state: ServerState, step: Step, round_: int) -> ServerState:
        """The server's state after the combined update of a round."""
        return OPTIMISERS.build(self.optimiser).apply(state, step, round_)

    def with_optimiser(self, **settings: Any) -> ServerConfig:
        """The same configuration with other settings of the optimiser."""
        return replace(self, optimiser=replace(OPTIMISERS.build(self.optimiser), **settings))

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "fraction": self.fraction,
            "aggregation": AGGREGATIONS.build(self.aggregation).spec(),
            "snapshot_every": self.snapshot_every,
            "optimiser": OPTIMISERS.build(self.optimiser).settings(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ServerConfig:
        """From plain values."""
        return cls(**values)
