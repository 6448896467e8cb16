"""Parameters: named tensors kept in one flat vector, and the public part of a model."""

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
    """Where named tensors lie in a flat vector. The order of ``shapes`` is their order in memory."""

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
        """Where each tensor begins, and the last one ends."""
        return np.array([0, *(place.stop for place in self.places.values())], np.int64)

    def view(self, flat: A, name: str) -> A:
        """One tensor of a flat vector, or of a stack of them (any leading axes are kept)."""
        return flat[..., self.places[name]].reshape(tuple(flat.shape[:-1]) + self.shapes[name])

    def views(self, flat: A) -> dict[str, A]:
        """All tensors of a flat vector by name."""
        return {name: self.view(flat, name) for name in self.shapes}


@dataclass(frozen=True)
class GlobalParameters:
    """The public part of a model: the item table and, in one flat vector, every other shared tensor."""

    items: Array
    dense: Array
    layout: Layout

    def copy(self) -> GlobalParameters:
        """An independent copy."""
        return GlobalParameters(self.items.copy(), self.dense.copy(), self.layout)

    def named(self) -> dict[str, Array]:
        """Every tensor by name, the item table as ``items``."""
        return {"items": self.items, **self.layout.views(self.dense)}

    @property
    def checksum(self) -> str:
        """A quick check for damage. Unlike the digest it is no proof: equal parameters could be forged."""
        return checksum_of([self.items, self.dense])

    @property
    def digest(self) -> str:
        """The SHA-256 of every bit of the parameters."""
        digest = hashlib.sha256(np.ascontiguousarray(self.items).data)
        digest.update(np.ascontiguousarray(self.dense).data)
        return digest.hexdigest()

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any], layout: Layout) -> GlobalParameters:
        """Put together tensors by name, as ``named`` gives them."""
        dense = np.empty(layout.size, np.float32)
        for name in layout.shapes:
            layout.view(dense, name)[...] = tensors[name]
        return cls(tensors["items"].astype(np.float32, copy=False), dense, layout)


_ODD = 0x9E3779B97F4A7C15
_ALL = 2**64 - 1


def checksum_of(arrays: Sequence[Array]) -> str:
    """A quick checksum of several arrays, which also depends on their order."""
    total = 0
    for place, values in enumerate(arrays):
        total ^= _checksum(_words(values)) * pow(_ODD, place, 2**64) & _ALL
    return f"{total:016x}"


def _words(values: Array) -> NDArray[np.uint64]:
    """The bits of an array, eight bytes a word, zeros at the end."""
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    return np.append(flat, np.uint32(0)).view(np.uint64) if flat.size % 2 else flat.view(np.uint64)


@exact
def _checksum(words: NDArray[np.uint64]) -> int:
    """Every word multiplied into one of four lanes that run side by side, and these into one at the end."""
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
