"""Parameters: named tensors kept in one flat vector, and the public part of a model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

Array = NDArray[np.float32]
A = TypeVar("A", Array, torch.Tensor)


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

    def view(self, flat: A, name: str) -> A:
        """One tensor of a flat vector, or of a stack of them (any leading axes are kept)."""
        return flat[..., self.places[name]].reshape(tuple(flat.shape[:-1]) + self.shapes[name])

    def views(self, flat: A) -> dict[str, A]:
        """All tensors of a flat vector by name."""
        return {name: self.view(flat, name) for name in self.shapes}


@dataclass(frozen=True)
class Public:
    """The public part of a model: the item table and, in one flat vector, every other shared tensor."""

    items: Array
    dense: Array
    layout: Layout

    def copy(self) -> Public:
        """An independent copy."""
        return Public(self.items.copy(), self.dense.copy(), self.layout)

    def named(self) -> dict[str, Array]:
        """Every tensor by name, the item table as ``items``."""
        return {"items": self.items, **self.layout.views(self.dense)}

    @property
    def digest(self) -> str:
        """A checksum of every bit of the parameters."""
        digest = hashlib.sha256(self.items.tobytes())
        digest.update(self.dense.tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """The parameters as a safetensors file."""
        data: bytes = save({name: np.ascontiguousarray(value) for name, value in self.named().items()})
        return data

    @classmethod
    def from_file(cls, path: Path, layout: Layout) -> Public:
        """Read a safetensors file written from ``to_bytes``."""
        tensors: dict[str, Any] = load_file(path)
        dense = np.empty(layout.size, np.float32)
        for name in layout.shapes:
            layout.view(dense, name)[...] = tensors[name]
        return cls(tensors["items"].astype(np.float32, copy=False), dense, layout)
