"""A server optimiser: every parameter moves by the same amount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import fedforget as ff


@dataclass(frozen=True)
class SignSGD(ff.Optimiser):
    """Move each parameter by ``lr`` in the direction of the combined update."""

    lr: float = 0.01

    name: ClassVar[str] = "sign"

    def apply(self, state: ff.ServerState, step: ff.Step, round_: int) -> ff.ServerState:
        """The state after the step of a round."""
        lr, public = np.float32(self.lr_at(round_)), state.public
        items = public.items + lr * np.sign(step.items)
        dense = public.dense + lr * np.sign(step.dense)
        return ff.ServerState(ff.GlobalParameters(items, dense, public.layout))
