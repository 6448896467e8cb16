"""Pending: a replayed round that is not logged yet, because the server has not sent its factors."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedforget.device.calibration import scale
from fedforget.device.log.device_log import DeviceLog
from fedforget.device.log.entries import Keys
from fedforget.device.plan import Plan, own_plan
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
        scaled = replace(self.trained, rows=self.trained.rows.copy(), dense=self.trained.dense.copy())
        scale(self.plan.items, scaled, factors.items, factors.dense, layout)
        log.record(self.round, self.keys, self.plan, scaled, sound=self.sound)

    def to_bytes(self, place: int) -> bytes:
        """One user's part, as a safetensors file."""
        plan, trained = self.plan, self.trained
        rows = slice(plan.item_ptr[place], plan.item_ptr[place + 1])
        bits = slice(plan.bit_ptr[place], plan.bit_ptr[place + 1])
        client = slice(place, place + 1)
        parts: dict[str, NDArray[Any]] = {
            "items": plan.items[rows],
            "draw_bits": plan.draw_bits[bits],
            "positives": plan.positives[client],
            "rows": trained.rows[rows],
            "dense": trained.dense[client],
            "private": trained.private[client],
            "losses": trained.losses[client],
        }
        parts["crc"] = _crc(parts)
        return save({name: np.ascontiguousarray(part) for name, part in parts.items()})

    @classmethod
    def from_bytes(cls, round_: int, key: int, body: bytes) -> Pending:
        """Read one user's part."""
        parts = load(body)
        crc = parts.pop("crc", None)  # earlier versions have none
        if crc is not None and crc != _crc(parts):
            raise ValueError("a pending round does not match its checksum")
        items, bits = parts["items"], parts["draw_bits"]
        plan = replace(
            own_plan(np.array([0, items.size]), items),
            positives=parts["positives"],
            bit_ptr=np.array([0, bits.size]),
            draw_bits=bits,
        )
        trained = Trained(parts["rows"], parts["dense"], parts["private"], parts["losses"])
        return cls(round_, np.array([key], np.uint64), plan, trained, np.ones(1, bool))


def _crc(parts: Mapping[str, NDArray[Any]]) -> NDArray[np.uint32]:
    """A checksum of arrays."""
    joined = b"".join(np.ascontiguousarray(parts[name]).tobytes() for name in sorted(parts))
    return np.array([zlib.crc32(joined)], np.uint32)
