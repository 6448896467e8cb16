"""Pending: a replayed round that is not logged yet, since the server has still to send its factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedforget.device.calibration import scale
from fedforget.device.log.device_log import DeviceLog
from fedforget.device.log.entries import Keys
from fedforget.device.plan import Plan
from fedforget.device.training import Trained
from fedforget.models import Layout
from fedforget.protocol.factors import Factors


@dataclass(frozen=True)
class Pending:
    """The plan and training of some users in a round; ``sound``: whose training did not diverge."""

    round: int
    keys: Keys
    plan: Plan
    trained: Trained
    sound: NDArray[np.bool_]

    def apply_factors(self, factors: Factors, log: DeviceLog, layout: Layout) -> None:
        """Log the round with its updates scaled."""
        fresh = self.trained
        scaled = Trained(fresh.rows.copy(), fresh.dense.copy(), fresh.private, fresh.losses)
        scale(self.plan.items, scaled, factors.items, factors.dense, layout)
        log.record(self.round, self.keys, self.plan, scaled, sound=self.sound)

    def to_bytes(self, place: int) -> bytes:
        """One user's part, as a safetensors file."""
        plan, trained = self.plan, self.trained
        own = slice(plan.item_ptr[place], plan.item_ptr[place + 1])
        bits = slice(plan.bit_ptr[place], plan.bit_ptr[place + 1])
        parts = {
            "items": plan.items[own],
            "draw_bits": plan.draw_bits[bits],
            "positives": plan.positives[place : place + 1],
            "rows": trained.rows[own],
            "dense": trained.dense[place : place + 1],
            "private": trained.private[place : place + 1],
            "losses": trained.losses[place : place + 1],
        }
        return save({name: np.ascontiguousarray(part) for name, part in parts.items()})

    @classmethod
    def from_bytes(cls, round_: int, key: int, body: bytes) -> Pending:
        """Read one user's part."""
        parts = load(body)
        nothing = np.empty(0, np.int32)
        plan = Plan(
            np.array([0, parts["items"].size]),
            parts["items"],
            parts["positives"],
            np.zeros(2, np.int64),
            nothing,
            nothing,
            np.zeros(1, np.uint64),
            np.array([0, parts["draw_bits"].size]),
            parts["draw_bits"],
        )
        trained = Trained(parts["rows"], parts["dense"], parts["private"], parts["losses"])
        return cls(round_, np.array([key], np.uint64), plan, trained, np.ones(1, bool))
