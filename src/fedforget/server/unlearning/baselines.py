"""Baselines: Retrain, FedRemove, Continue."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

from fedforget.errors import ConfigError
from fedforget.protocol.tasks import Train
from fedforget.server.unlearning.method import Method, Past, PastStep, Result, Step, strides


@dataclass(frozen=True)
class Retrain(Method):
    """Train from scratch without the forgotten users, with the same cohorts and seed: the reference.

    ``stride`` past rounds are trained from the same parameters in one communication round (condensed Retrain).

    With ``steps`` the model is trained in that many rounds with new cohorts, each a ``fraction`` of the remaining
    devices, at ``lr_scale`` times the server's learning rate, which falls over these rounds. A history with no more
    rounds than that is retrained with its own rounds.
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
                "Give either steps (a number of new rounds) or stride (past rounds in a step).",
            )
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction is {self.fraction}.", "Give the fraction of devices: above 0, at most 1.")
        if not 0 < self.lr_scale < float("inf"):
            raise ConfigError(f"lr_scale is {self.lr_scale}.", "Give a positive factor for the server's learning rate.")

    def schedule(self, past: Past) -> list[Step]:
        if not self.trains_anew(past.last):
            return strides(past, self.stride)
        ends = [past.last * step // self.steps for step in range(self.steps + 1)]
        cohorts = [past.draw(end, self.fraction) for end in ends[1:]]
        return [
            Step(before + 1, end, {end: cohort} if cohort else {})
            for (before, end), cohort in zip(itertools.pairwise(ends), cohorts, strict=True)
        ]

    def step(self, past: PastStep) -> Result:
        if not self.trains_anew(past.of.last):
            return past.train()
        server = past.aggregator.server
        optimiser = replace(server.optimiser, lr=server.optimiser.lr * self.lr_scale, horizon=self.steps)
        aggregator = replace(past.aggregator, server=replace(server, optimiser=optimiser))
        ((end, users),) = past.asked.items()
        results = past.clients.run(Train(past.epochs, counted_in=past.of.last), past.asked, past.public)
        step, accepted = aggregator.combine(results[end], past.public, users)
        everyone = len(aggregator.roster.users)
        return aggregator.apply(past.state, step, past.number, everyone), {end: accepted}

    def begin(self, first: int, last: int) -> int:
        return 1

    def trains_anew(self, rounds: int) -> bool:
        return 0 < self.steps < rounds


@dataclass(frozen=True)
class FedRemove(Method):
    """Apply the logged updates of the remaining users again, without training."""

    name: ClassVar[str] = "fedremove"

    def step(self, past: PastStep) -> Result:
        return past.recall()

    def training_share(self, epochs: int) -> float:
        return 0.0

    def needs_whole_updates(self) -> bool:
        return True


@dataclass(frozen=True)
class Continue(Method):
    """Do not roll back: continue training without the forgotten users, for a ``share`` of the rounds so far.

    By default as much training as FRU with λ = 0.1. The forgotten users' influence stays in the model, and later
    erasures cannot remove it, since their participation is no longer recorded.
    """

    share: float = 0.1

    name: ClassVar[str] = "continue"

    def __post_init__(self) -> None:
        if not self.share >= 0:
            raise ConfigError(f"share is {self.share}.", "Give a fraction of the rounds so far: 0 or more.")

    def step(self, past: PastStep) -> Result:
        raise AssertionError("Continue replays no round")

    def begin(self, first: int, last: int) -> int:
        return last + 1

    def more_rounds(self, last: int) -> int:
        return max(1, round(self.share * last)) if last and self.share else 0


def check_stride(stride: int) -> None:
    """Refuse a stride below 1."""
    if stride < 1:
        raise ConfigError(f"stride is {stride}.", "Give the number of past rounds in a step: 1 or more.")
