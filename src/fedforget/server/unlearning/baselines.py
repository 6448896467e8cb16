"""The baselines: what FRU is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedforget.errors import ConfigError
from fedforget.server.state import ServerState
from fedforget.server.unlearning.method import Method, PastRound
from fedforget.updates import Answers


@dataclass(frozen=True)
class Retrain(Method):
    """From scratch without the leavers: the same cohorts minus the leavers, the same seed. The reference."""

    name: ClassVar[str] = "retrain"

    def step(self, past: PastRound) -> tuple[ServerState, Answers]:
        """Train in full."""
        return past.train()

    def begin(self, first: int, last: int) -> int:
        """With the first round, though without earlier erasures those before ``first`` come out as they were."""
        return 1


@dataclass(frozen=True)
class FedRemove(Method):
    """The stored updates of the stayers, one after another, as they are."""

    name: ClassVar[str] = "fedremove"

    def step(self, past: PastRound) -> tuple[ServerState, Answers]:
        """Take what the logs have."""
        return past.recall()

    def training_share(self, epochs: int) -> float:
        """No training at all."""
        return 0.0

    def needs_whole_updates(self) -> bool:
        """They are all it has."""
        return True


@dataclass(frozen=True)
class Continue(Method):
    """No way back: train on without the leavers, for a share of the rounds so far, and hope that they wash out.

    By default a tenth of the rounds, in full epochs: the training that FRU with λ = 0.1 takes. What they did stays in
    the model's past for good: it is no longer known in which rounds they took part, so nothing can go back before them.
    """

    share: float = 0.1

    name: ClassVar[str] = "continue"

    def __post_init__(self) -> None:
        if not self.share >= 0:
            raise ConfigError(f"share is {self.share}.", "Give the extra rounds as a share of those so far: 0 or more.")

    def step(self, past: PastRound) -> tuple[ServerState, Answers]:
        """There is nothing to go through again."""
        raise AssertionError("Continue replays no round")

    def begin(self, first: int, last: int) -> int:
        """With none."""
        return last + 1

    def more_rounds(self, last: int) -> int:
        """At least one, if there is anything to continue."""
        return max(1, round(self.share * last)) if last and self.share else 0
