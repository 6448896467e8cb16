"""Parameters: named tensors in one flat vector, and the global parameters of a model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedforget.runtime.compiled import exact

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float32]
A = TypeVar("A", Array, "Tensor")


@dataclass(frozen=True)
class Layout:
    """The positions of named tensors in a flat vector, in the order of ``shapes``."""

    shapes: Mapping[str, tuple[int, ...]]
    places: Mapping[str, slice] = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        places, start = {}, 0
        for name, shape in self.shapes.items():
            places[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "size", start)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """The start of each tensor and the end of the last one."""
        return np.array([0, *(place.stop for place in self.places.values())], np.int64)

    def view(self, flat: A, name: str) -> A:
        """One tensor of a flat vector, or of a stack of flat vectors (leading axes are kept)."""
        return flat[..., self.places[name]].reshape(tuple(flat.shape[:-1]) + self.shapes[name])

    def views(self, flat: A) -> dict[str, A]:
        """All tensors of a flat vector by name."""
        return {name: self.view(flat, name) for name in self.shapes}


@dataclass(frozen=True)
class GlobalParameters:
    """The global parameters of a model: the item table and, in one flat vector, every other shared tensor."""

    items: Array
    dense: Array
    layout: Layout

    def copy(self) -> GlobalParameters:
        return GlobalParameters(self.items.copy(), self.dense.copy(), self.layout)

    def named(self) -> dict[str, Array]:
        """Every tensor by name, the item table as ``items``."""
        return {"items": self.items, **self.layout.views(self.dense)}

    @property
    def digest(self) -> str:
        """The SHA-256 of the parameters."""
        digest = hashlib.sha256(np.ascontiguousarray(self.items).data)
        digest.update(np.ascontiguousarray(self.dense).data)
        return digest.hexdigest()

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any], layout: Layout) -> GlobalParameters:
        """The parameters from tensors by name, the inverse of ``named``."""
        dense = np.empty(layout.size, np.float32)
        for name in layout.shapes:
            layout.view(dense, name)[...] = tensors[name]
        return cls(tensors["items"].astype(np.float32, copy=False), dense, layout)


_ODD = 0x9E3779B97F4A7C15
_ALL = 2**64 - 1


def checksum_of(arrays: Sequence[Array]) -> str:
    """A fast checksum of several arrays in this order. It detects damage, not forgery."""
    total = 0
    for place, values in enumerate(arrays):
        bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
        if bits.size % 2:
            bits = np.append(bits, np.uint32(0))
        total ^= _checksum(bits.view(np.uint64)) * pow(_ODD, place, 2**64) & _ALL
    return f"{total:016x}"


@exact
def _checksum(words: NDArray[np.uint64]) -> int:
    """Multiply the words into four independent lanes, which are combined at the end."""
    odd, shift = np.uint64(_ODD), np.uint64(29)
    lanes = np.array([1, 2, 3, 4], np.uint64)
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    whole = words.size // 4 * 4
    for i in range(0, whole, 4):
        a = (a ^ words[i]) * odd
        b = (b ^ words[i + 1]) * odd
        c = (c ^ words[i + 2]) * odd
        d = (d ^ words[i + 3]) * odd
        a, b, c, d = a ^ (a >> shift), b ^ (b >> shift), c ^ (c >> shift), d ^ (d >> shift)
    for i in range(whole, words.size):
        a = (a ^ words[i]) * odd
        a ^= a >> shift
    for lane in (b, c, d, np.uint64(words.size)):
        a = (a ^ lane) * odd
        a ^= a >> shift
    return int(a)
