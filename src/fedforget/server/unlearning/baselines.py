"""Baselines: Retrain, FedRemove, Continue."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

from fedforget.errors import ConfigError
from fedforget.protocol.tasks import Train
from fedforget.server.optimiser import OPTIMISERS
from fedforget.server.unlearning.method import Method, Past, PastStep, Result, Step, strides


@dataclass(frozen=True)
class Retrain(Method):
    """Train from scratch without the forgotten users, with the same cohorts and seed: the reference.

    ``stride`` past rounds are trained from the same parameters in one communication round (condensed Retrain).

    With ``steps`` the model is trained in this many rounds with new cohorts, each a ``fraction`` of the remaining
    devices, at ``lr_scale`` times the server's learning rate, which falls over these rounds. A history with no more
    rounds than that is trained again as it was.
    """

    stride: int = 1
    steps: int = 0
    fraction: float = 1.0
    lr_scale: float = 2.0

    name: ClassVar[str] = "retrain"

    def __post_init__(self) -> None:
        check_stride(self.stride)
        if self.steps < 0 or (self.steps and self.stride > 1):
            raise ConfigError(
                f"steps is {self.steps}, stride is {self.stride}.",
                "Give either the number of rounds to train anew in, or how many past rounds to put together.",
            )
        if not 0 < self.fraction <= 1:
            raise ConfigError(
                f"fraction is {self.fraction}.", "Give the share of devices in a step: above 0, at most 1."
            )
        if not 0 < self.lr_scale < float("inf"):
            raise ConfigError(f"lr_scale is {self.lr_scale}.", "Give a positive factor for the server's learning rate.")

    def schedule(self, past: Past) -> list[Step]:
        """Strides over the past rounds, or new cohorts, each for an equal share of them."""
        if not self._anew(past.last):
            return strides(past, self.stride)
        ends = [past.last * step // self.steps for step in range(self.steps + 1)]
        drawn = {end: past.draw(end, self.fraction) for end in ends[1:]}
        return [
            Step(before + 1, end, {end: drawn[end]} if drawn[end] else {}) for before, end in itertools.pairwise(ends)
        ]

    def step(self, past: PastStep) -> Result:
        """Train in full."""
        if not self._anew(past.of.last):
            return past.train()
        server = past.aggregator.server
        faster = server.with_optimiser(lr=OPTIMISERS.build(server.optimiser).lr * self.lr_scale, horizon=self.steps)
        aggregator = replace(past.aggregator, server=faster)
        ((end, users),) = past.asked.items()
        results = past.clients.run(Train(past.epochs), past.asked, past.public)
        step, accepted = aggregator.combine(results[end], past.public, users)
        return aggregator.apply(past.state, step, past.number), {end: accepted}

    def begin(self, first: int, last: int) -> int:
        """Always the first round."""
        return 1

    def _anew(self, rounds: int) -> bool:
        return 0 < self.steps < rounds


@dataclass(frozen=True)
class FedRemove(Method):
    """Apply the logged updates of the remaining users again, without training."""

    name: ClassVar[str] = "fedremove"

    def step(self, past: PastStep) -> Result:
        """Apply logged updates."""
        return past.recall()

    def training_share(self, epochs: int) -> float:
        """No training at all."""
        return 0.0

    def needs_whole_updates(self) -> bool:
        """It applies nothing else."""
        return True


@dataclass(frozen=True)
class Continue(Method):
    """Do not roll back: train on without the forgotten users, for a ``share`` of the rounds so far.

    The default, a tenth of the rounds in full epochs, is the training that FRU with λ = 0.1 takes. The forgotten users'
    influence stays in the model, and later erasures cannot remove it: their participation is no longer on record.
    """

    share: float = 0.1

    name: ClassVar[str] = "continue"

    def __post_init__(self) -> None:
        if not self.share >= 0:
            raise ConfigError(f"share is {self.share}.", "Give the extra rounds as a share of those so far: 0 or more.")

    def step(self, past: PastStep) -> Result:
        """Never called: no round is replayed."""
        raise AssertionError("Continue replays no round")

    def begin(self, first: int, last: int) -> int:
        """No round."""
        return last + 1

    def more_rounds(self, last: int) -> int:
        """At least one, if any round was trained."""
        return max(1, round(self.share * last)) if last and self.share else 0


def check_stride(stride: int) -> None:
    """Refuse a stride below 1."""
    if stride < 1:
        raise ConfigError(f"stride is {stride}.", "Give the number of past rounds in a step: 1 or more.")
