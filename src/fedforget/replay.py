"""Replay: how devices are asked to go through a past round again; both sides speak of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.models.parameters import Array

#: Which items a device replays on: negatives drawn afresh, or exactly the items that its log names for the round.
ITEMS = ["fresh", "logged"]
#: Which parts of a fresh update get their old length: everything (the paper's way), or the item rows alone, while other
#: tensors, which all users share, move as they were trained.
PARTS = ["rows", "all"]
#: What becomes of a device's fresh private update, of which no length is stored: it is taken as it is (the paper's
#: way), or stretched by as much as the replay is shorter than the training was.
PRIVATES = ["fresh", "stretched"]
#: Who gives a fresh update its old length: the server, for the cohort's aggregate (the paper's way), or each device,
#: for its own update.
CALIBRATIONS = ["server", "device"]


@dataclass(frozen=True)
class Replay:
    """Train for ``epochs`` epochs on ``items``; then give ``parts`` of the update (none, if None) their logged lengths.

    The private update is taken ``stretch`` times. With ``stored`` the device sends its logged update along with the
    fresh one and waits to be told by which factors the server has scaled it (``Factors``) before it logs the round.
    """

    epochs: int
    items: str = "fresh"
    parts: str | None = "rows"
    stored: bool = False
    stretch: float = 1.0

    @property
    def uses_log(self) -> bool:
        """Whether a device has to look up in its log what it did then; if not, it simply trains."""
        return self.items == "logged" or self.parts is not None or self.stored


@dataclass(frozen=True)
class Factors:
    """By how much the server scaled each item row and each other tensor of a round's fresh updates."""

    items: Array
    dense: Array

    @classmethod
    def nothing(cls, n_items: int, n_tensors: int) -> Factors:
        """The updates were not used: as if they had been scaled to nothing."""
        return cls(np.zeros(n_items, np.float32), np.zeros(n_tensors, np.float32))
