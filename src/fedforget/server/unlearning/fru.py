"""FRU: federated recommendation unlearning, the paper's method and what goes beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedforget.errors import ConfigError, one_of
from fedforget.replay import CALIBRATIONS, ITEMS, PARTS, PRIVATES, Factors, Replay
from fedforget.server.state import ServerState
from fedforget.server.unlearning.calibrate import GRANULARITIES, calibrate
from fedforget.server.unlearning.method import Method, PastRound
from fedforget.updates import Answers


@dataclass(frozen=True)
class FRU(Method):
    """Replay the rounds since the first leaver took part, in ⌈λL⌉ epochs each, with the lengths of the old updates.

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
        if self.calibration == "device" and self.granularity != "row":
            raise ConfigError(
                f"granularity is {self.granularity!r} with calibration 'device'.",
                "On the device every row has its own length; use granularity 'row', or calibration 'server'.",
            )

    def step(self, past: PastRound) -> tuple[ServerState, Answers]:
        """Before the first leaver: as it was. With the first: what stayers did then. After: short and calibrated."""
        if past.round < past.first:
            return past.train()
        if past.round == past.first:
            return past.recall() if self.calibration == "server" else past.train()
        if self.calibration == "server":
            return self._calibrated_here(past)
        how = self._how(past.epochs)
        return past.take(past.clients.replay(past.round, past.public, past.users, how))

    def _calibrated_here(self, past: PastRound) -> tuple[ServerState, Answers]:
        how = replace(self._how(past.epochs), parts=None, stored=True)
        answers = past.clients.replay(past.round, past.public, past.users, how)
        assert answers.stored is not None
        old, stored = past.combined(Answers(answers.stored))
        fresh, answers = past.combined(answers)
        if list(answers.updates.users) != list(stored.updates.users):
            answers, stored = _both(answers, stored)
            (fresh, answers), (old, stored) = past.combined(answers), past.combined(stored)
        layout = past.public.layout
        if fresh is None or old is None:
            past.clients.settle(past.round, Factors.nothing(past.public.items.shape[0], len(layout.shapes)))
            return past.state, replace(answers, stored=stored.updates)
        step, factors = calibrate(old, fresh, layout, self.granularity, self.parts)
        past.clients.settle(past.round, factors)
        return past.apply(step), replace(answers, stored=stored.updates)

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


def _both(fresh: Answers, stored: Answers) -> tuple[Answers, Answers]:
    """The answers of those whose fresh and stored updates can both be used: no length without its own direction."""
    users = set(fresh.updates.users) & set(stored.updates.users)
    keep, kept = (np.array([user in users for user in part.updates.users], bool) for part in (fresh, stored))
    failures = {**stored.failures, **fresh.failures}
    return replace(fresh, updates=fresh.updates.only(keep), failures=failures), Answers(stored.updates.only(kept))
