"""FRU: federated recommendation unlearning, the paper's method and what goes beyond it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedforget.errors import ConfigError, one_of
from fedforget.models import Recommender
from fedforget.randomness import UserId
from fedforget.replay import CALIBRATIONS, ITEMS, PARTS, PRIVATES, Factors, Replay
from fedforget.server.aggregate import Step as Combined
from fedforget.server.rounds import Protocol
from fedforget.server.state import ServerState
from fedforget.server.unlearning.baselines import check_stride
from fedforget.server.unlearning.calibrate import GRANULARITIES, calibrate
from fedforget.server.unlearning.method import Method, Past, PastStep, Result, Step, strides
from fedforget.updates import Answers

#: How many past rounds a step has by default, and how far it may go (docs/decisions/0010).
STRIDE, LIMIT = 10, 0.7
#: How many where devices train tensors that all users share, such as a perceptron: then there is no limit.
SHARED_STRIDE = 2
#: The aggregation rules under which a row's step shrinks with the clients of the cohort that did not touch it.
AVERAGING = ("mean", "weighted")


@dataclass(frozen=True)
class FRU(Method):
    """Replay the rounds since the first leaver took part, in ⌈λL⌉ epochs each, with the lengths of the old updates.

    ``stride`` past rounds are replayed from the same parameters, in one communication round. Such a step moves the item
    table at most ``limit`` times as far as the old model moved in the same rounds (0: no limit). By default both are
    what suits the model and the server's recipe (``for_model``, ``for_protocol``).

    ``speedup`` is the paper's λ. ``calibration="device"``: each device gives its own fresh update the lengths in its
    log. ``"server"``: the server gives the cohort's fresh aggregate the length of the stored one (the paper; the log
    must hold whole updates), each item row by itself or the whole table (``granularity``). ``replay="logged"`` trains
    on the items that the log names instead of fresh negatives.

    ``parts="rows"`` gives item rows their old lengths and takes other tensors (a perceptron) as they were trained;
    ``"all"`` gives every tensor its length (the paper). ``private="fresh"`` takes a device's private update as a short
    training leaves it (the paper); ``"stretched"`` takes it L / ⌈λL⌉ times, as far as all epochs would have gone.
    """

    speedup: float = 0.1
    calibration: str = "device"
    granularity: str = "row"
    replay: str = "fresh"
    parts: str = "rows"
    private: str = "stretched"
    stride: int | None = None
    limit: float | None = None

    name: ClassVar[str] = "fru"

    def __post_init__(self) -> None:
        if not 0 < self.speedup <= 1:
            raise ConfigError(f"speedup is {self.speedup}.", "λ is the share of the local epochs: above 0, at most 1.")
        for kind, value, known in (
            ("calibration", self.calibration, CALIBRATIONS),
            ("granularity", self.granularity, GRANULARITIES),
            ("replay", self.replay, ITEMS),
            ("parts", self.parts, PARTS),
            ("private", self.private, PRIVATES),
        ):
            if value not in known:
                raise one_of(kind, value, known)
        if self.stride is not None:
            check_stride(self.stride)
        if not (self.limit or 0) >= 0:
            raise ConfigError(
                f"limit is {self.limit}.", "Give the length of a step relative to the old one, or 0 for no limit."
            )
        if self.calibration == "server" and (self.stride or 1) > 1:
            raise ConfigError(
                f"stride is {self.stride} with calibration 'server'.",
                "The server calibrates one round at a time; use stride 1, or calibration 'device'.",
            )
        if self.calibration == "device" and self.granularity != "row":
            raise ConfigError(
                f"granularity is {self.granularity!r} with calibration 'device'.",
                "On the device every row has its own length; use granularity 'row', or calibration 'server'.",
            )

    def for_model(self, model: Recommender) -> FRU:
        """With its stride. Where devices train tensors that all users share, it is short and has no limit."""
        stride = 1 if self.calibration == "server" else default_stride(model)
        method = self if self.stride is not None else replace(self, stride=stride)
        return replace(method, limit=0.0) if self.limit is None and model.update_layout.size else method

    def for_protocol(self, protocol: Protocol) -> FRU:
        """With its limit. There is none where updates are averaged: such rounds do not go too far together."""
        if self.limit is not None:
            return self
        return replace(self, limit=0.0 if protocol.aggregation in AVERAGING else LIMIT)

    def schedule(self, past: Past) -> list[Step]:
        """The rounds up to the first leaver's one by one, if they were trained in full; then steps of ``stride``."""
        head = range(min(past.stayers, default=1), past.first + 1)
        if not set(head).issubset(past.whole):
            return strides(past, self.stride or 1)
        before = [step for step in strides(past, 1) if step.last <= past.first]
        return [replace(step, as_it_was=True) for step in before] + strides(past, self.stride or 1, after=past.first)

    def step(self, past: PastStep) -> Result:
        """Rounds short and calibrated, but those up to the first leaver's as they were."""
        if self.calibration == "server":
            ((round_, users),) = past.asked.items()
            if round_ >= past.of.first:
                return past.recall() if round_ == past.of.first else self._calibrated_here(past, round_, users)
        if past.step.as_it_was or self.calibration == "server":
            return past.train()
        state, taken = past.replay(self._how(past.epochs))
        return (self._limited(past, state, self.limit) if self.limit and len(past.asked) > 1 else state), taken

    def _limited(self, past: PastStep, state: ServerState, limit: float) -> ServerState:
        """Rounds that start from one point all go the same way: together no further than the limit says.

        Where an earlier erasure has replayed these rounds, how far they went is limited already.
        """
        first, last = past.step.first, past.step.last
        again = not past.of.whole >= set(range(first, last + 1))
        step = state.public.items - past.public.items
        length, most = float(np.linalg.norm(step)), (1.0 if again else limit) * past.of.moved(first, last)
        if length <= most:
            return state
        items = past.public.items + np.float32(most / length) * step
        return replace(state, public=replace(state.public, items=items))

    def _calibrated_here(self, past: PastStep, round_: int, users: Sequence[UserId]) -> Result:
        def combined(answers: Answers) -> tuple[Combined | None, Answers]:
            return past.aggregator.combined(answers, past.public, users)

        how = replace(self._how(past.epochs), parts=None, stored=True)
        answers = past.clients.replay(past.asked, past.public, how)[round_]
        assert answers.stored is not None
        old, stored = combined(Answers(answers.stored))
        fresh, answers = combined(answers)
        if list(answers.updates.users) != list(stored.updates.users):
            answers, stored = _both(answers, stored)
            (fresh, answers), (old, stored) = combined(answers), combined(stored)
        layout = past.public.layout
        taken = {round_: replace(answers, stored=stored.updates)}
        if fresh is None or old is None:
            past.clients.settle(round_, Factors.nothing(past.public.items.shape[0], len(layout.shapes)))
            return past.state, taken
        step, factors = calibrate(old, fresh, layout, self.granularity, self.parts)
        past.clients.settle(round_, factors)
        return past.aggregator.apply(past.state, step, round_), taken

    def shortens_training(self) -> bool:
        """It trains ⌈λL⌉ of L epochs."""
        return True

    def training_share(self, epochs: int) -> float:
        """⌈λL⌉ of L epochs."""
        return self._epochs(epochs) / epochs

    def updates_sent(self) -> int:
        """The fresh one and, for the server's calibration, the stored one."""
        return 2 if self.calibration == "server" else 1

    def needs_whole_updates(self) -> bool:
        """The server's calibration needs them."""
        return self.calibration == "server"

    def _how(self, epochs: int) -> Replay:
        short = self._epochs(epochs)
        stretch = epochs / short if self.private == "stretched" else 1.0
        return Replay(short, self.replay, self.parts, stretch=stretch)

    def _epochs(self, epochs: int) -> int:
        return math.ceil(self.speedup * epochs - 1e-9)


def default_stride(model: Recommender) -> int:
    """How many past rounds a step has by default."""
    return SHARED_STRIDE if model.update_layout.size else STRIDE


def _both(fresh: Answers, stored: Answers) -> tuple[Answers, Answers]:
    """The answers of those whose fresh and stored updates can both be used: no length without its own direction."""
    users = set(fresh.updates.users) & set(stored.updates.users)
    keep, kept = (np.array([user in users for user in part.updates.users], bool) for part in (fresh, stored))
    failures = {**stored.failures, **fresh.failures}
    return replace(fresh, updates=fresh.updates.only(keep), failures=failures), Answers(stored.updates.only(kept))
