"""Replay: how devices are asked to go through a past round again; both sides speak of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.models.parameters import Array

#: Which items a device replays on: negatives drawn afresh, or exactly the items that its log names for the round.
ITEMS = ["fresh", "logged"]
#: Who gives a fresh update its old length: the server, for the cohort's aggregate (the paper's way), or each device,
#: for its own update.
CALIBRATIONS = ["server", "device"]


@dataclass(frozen=True)
class Replay:
    """Train for ``epochs`` epochs on ``items``; if ``calibrated``, give each part of the update its logged length.

    With ``stored`` the device sends its logged update along with the fresh one and waits to be told by which factors
    the server has scaled it (``Factors``) before it logs the round.
    """

    epochs: int
    items: str = "fresh"
    calibrated: bool = True
    stored: bool = False


@dataclass(frozen=True)
class Factors:
    """By how much the server scaled each item row and each other tensor of a round's fresh updates."""

    items: Array
    dense: Array

    @classmethod
    def nothing(cls, n_items: int, n_tensors: int) -> Factors:
        """The updates were not used: as if they had been scaled to nothing."""
        return cls(np.zeros(n_items, np.float32), np.zeros(n_tensors, np.float32))
