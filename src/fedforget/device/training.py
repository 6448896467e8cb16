"""Local training: from a plan and the parameters received to the updates to send.

Three trainers do the same arithmetic. ``compiled`` is for the built-in models on the CPU; ``stacked`` trains any
model, on any torch device, as tensors with a client axis; ``plain`` trains one client at a time in ordinary PyTorch.
Tests compare the others with ``plain``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedforget.device.plan import Plan
from fedforget.models.parameters import Array, GlobalParameters
from fedforget.models.recommender import Recommender

TRAINERS = ["auto", "compiled", "stacked", "plain"]


@dataclass(frozen=True)
class Trained:
    """The changes of public item rows (in the plan's order) and dense tensors, the new private rows, and the losses."""

    rows: Array
    dense: Array
    private: Array
    losses: Array

    @classmethod
    def empty(cls, plan: Plan, model: Recommender, private: Array) -> Trained:
        """Uninitialised arrays for the results of a plan."""
        return cls(
            np.empty((plan.items.size, model.dim), np.float32),
            np.empty((len(plan), model.update_layout.size), np.float32),
            np.empty_like(private),
            np.empty(len(plan), np.float32),
        )


class Trainer(Protocol):
    """Trains the clients of a plan for ``epochs`` epochs; ``private`` has one flat row per client."""

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        """Train without changing the arguments."""


def steps(plan: Plan, epochs: int, batch: int) -> NDArray[np.int64]:
    """The number of optimiser steps of each client."""
    return epochs * (-(-np.diff(plan.sample_ptr) // batch))
