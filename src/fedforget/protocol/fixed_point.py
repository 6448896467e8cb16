"""Fixed point: updates as whole numbers modulo 2^32, so that sums and masks are exact.

Secure aggregation adds numbers modulo 2^32. The scale of a number is the largest power of two for which the sum of n
bounded numbers cannot overflow. Numbers are rounded at random, up or down, so that the rounding of small numbers
averages out over many devices; 0 stays 0. The draws are keyed by the user's draw key and the round.

The vector of one update, for a catalogue of N items:

    items     N · dim      the update of the item table, 0 in rows that the device does not send
    dense     the other tensors that the device sends
    touches   N            1 in the rows that it sends, else 0
    loss      1            its training loss, 0 if it has none
    reported  1            1 if it has a training loss, else 0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.protocol.bounds import DENSE, TOLERANCE, Bounds
from fedforget.protocol.updates import Total, Updates
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact

Words = NDArray[np.uint32]
#: Losses above this count as this.
LARGEST_LOSS = 100.0
#: The most devices in one sum.
MOST_DEVICES = 1 << 20


@dataclass(frozen=True)
class SumFormat:
    """The vector that each of ``devices`` devices adds to a sum, and the scales of its numbers."""

    n_items: int
    dim: int
    dense: int
    bounds: Bounds
    devices: int

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.n_items * (self.dim + 1) + self.dense + 2

    @property
    def scales(self) -> tuple[float, float, float, float]:
        """The scales of item rows, of other tensors, of counts, and of losses."""
        row = TOLERANCE * self.bounds.clip
        return self._scale(row), self._scale(DENSE * row), self._scale(1.0), self._scale(LARGEST_LOSS)

    def _scale(self, bound: float) -> float:
        return 2.0 ** math.floor(math.log2((2**31 - 1) / (self.devices * (bound + 1e-9)) - 1))

    def encode(self, updates: Updates, draw_keys: NDArray[np.uint64], round_: int, seed: int, out: Words) -> None:
        """Add the updates of one round to a vector; ``draw_keys`` are the keys of their users' draws."""
        items, dense, touches, losses = self._split(out)
        counts, scales = np.zeros(self.n_items, np.uint32), self.scales
        _add_up(
            updates.ptr,
            updates.items,
            updates.rows,
            updates.dense,
            draw_keys,
            round_,
            seed,
            scales[0],
            scales[1],
            TOLERANCE * self.bounds.clip,
            TOLERANCE * DENSE * self.bounds.clip,
            items.reshape(self.n_items, self.dim),
            dense,
            counts,
        )
        touches += counts * np.uint32(scales[2])
        known = np.isfinite(updates.losses)
        loss = np.clip(updates.losses[known].astype(np.float64), 0.0, LARGEST_LOSS)
        losses[0] += np.uint32(int(np.floor(loss * scales[3]).sum()) % 2**32)
        losses[1] += np.uint32(int(known.sum()) * int(scales[2]) % 2**32)

    def decode(self, words: Words, users: Sequence[int | str]) -> Total:
        """The sum of the updates of some users, each of whom sent one vector."""
        signed = words.view(np.int32)
        items, dense, touches, losses = self._split(signed)
        scales = self.scales
        reported = float(losses[1]) / scales[2]
        return Total(
            users,
            (items / scales[0]).astype(np.float32).reshape(self.n_items, self.dim),
            (dense / scales[1]).astype(np.float32),
            np.maximum(np.rint(touches / scales[2]).astype(np.int64), 0),
            float(losses[0]) / scales[3] / reported if reported > 0 else None,
            len(users) * words.nbytes,
        )

    def counts(self, words: Words) -> NDArray[np.float64]:
        """How often each item was sent, as a vector says; a masked one says anything."""
        counts: NDArray[np.float64] = self._split(words.view(np.int32))[2] / self.scales[2]
        return counts

    def _split(self, words: NDArray[Any]) -> list[NDArray[Any]]:
        """Views of the parts of a vector: items, dense, touches, and both numbers of the loss."""
        return np.split(words, np.cumsum([self.n_items * self.dim, self.dense, self.n_items]))


def add_up(updates: Updates, sums: SumFormat, draw_keys: NDArray[np.uint64], round_: int, seed: int) -> Total:
    """The sum of updates as devices and server compute it together, without the masks, which cancel exactly."""
    words = np.zeros(sums.size, np.uint32)
    sums.encode(updates, draw_keys, round_, seed, words)
    return sums.decode(words, list(updates.users))


@exact
def _add_up(  # type: ignore[no-untyped-def]
    ptr, items, rows, dense, keys, round_, seed, scale, dense_scale, bound, dense_bound, out, out_dense, touches
) -> None:
    for c in range(ptr.size - 1):
        state = randomness.stream(seed, randomness.ROUNDING, round_, keys[c])
        for i in range(ptr[c], ptr[c + 1]):
            touches[items[i]] += np.uint32(1)
            for j in range(rows.shape[1]):
                out[items[i], j] += _rounded(rows[i, j], scale, bound, state)
        for j in range(dense.shape[1]):
            out_dense[j] += _rounded(dense[c, j], dense_scale, dense_bound, state)


@exact
def _rounded(value: np.float32, scale: float, bound: float, state: randomness.Stream) -> np.uint32:
    limited = min(max(np.float64(value), -bound), bound) if value == value else 0.0
    return np.uint32(np.int64(np.floor(limited * scale + randomness.uniform(state))) & 0xFFFFFFFF)


def encode_fractions(values: Sequence[float], devices: int) -> Words:
    """Numbers from 0 to 1 as a vector for a sum over some devices."""
    scale = _fraction_scale(devices)
    return np.array([round(min(max(value, 0.0), 1.0) * scale) for value in values], np.uint32)


def decode_fractions(words: Words, devices: int) -> list[float]:
    """The sums of numbers from 0 to 1."""
    return [float(value) for value in words / _fraction_scale(devices)]


def _fraction_scale(devices: int) -> float:
    return 2.0 ** math.floor(math.log2((2**32 - 1) / devices))
