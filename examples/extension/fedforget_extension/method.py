"""An unlearning method: retrain on some of the past rounds only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import fedforget as ff
from fedforget.server.unlearning.method import Past, Result, Step, strides


@dataclass(frozen=True)
class SparseRetrain(ff.Method):
    """Train again without the forgotten users, but only every ``every``-th past round."""

    every: int = 2

    name: ClassVar[str] = "sparse-retrain"

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ff.ConfigError(f"every is {self.every}.", "Give 1 to train every past round, or more.")

    def schedule(self, past: Past) -> list[Step]:
        """Groups of past rounds, each trained as its last round."""
        steps = strides(past, self.every)
        return [
            Step(step.first, step.last, {last: step.asked[last] for last in list(step.asked)[-1:]}) for step in steps
        ]

    def step(self, past: ff.PastStep) -> Result:
        """Train the round in full."""
        return past.train()
