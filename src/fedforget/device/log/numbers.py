"""NumberFormat: rows of numbers as float32, as float16, or as int8 with a scale for each tensor of a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array

_SCALE = 4
_DTYPES = {"float32": "<f4", "float16": "<f2"}


class NumberFormat:
    """Rows that consist of tensors of these sizes, one after another."""

    def __init__(self, encoding: str, sizes: Sequence[int]) -> None:
        self.encoding = encoding
        self.sizes = [size for size in sizes if size]
        total = sum(self.sizes)
        self.size = total + _SCALE * len(self.sizes) if encoding == "int8" else total * np.dtype(self._dtype).itemsize

    @property
    def _dtype(self) -> str:
        return _DTYPES.get(self.encoding, "<i1")

    def pack(self, rows: Array) -> NDArray[np.uint8]:
        """The bytes of each row. What float16 cannot hold becomes its largest number."""
        if self.encoding != "int8":
            limit = np.finfo(self._dtype).max
            numbers = rows if self.encoding == "float32" else np.clip(rows, -limit, limit)
            return np.ascontiguousarray(numbers.astype(self._dtype)).view(np.uint8).reshape(rows.shape[0], self.size)
        out = np.empty((rows.shape[0], self.size), np.uint8)
        at = source = 0
        for size in self.sizes:
            part = rows[:, source : source + size]
            scale = _scale(np.abs(part).max(axis=1, keepdims=True))
            steps = np.rint(part / np.where(scale > 0, scale, 1)).astype("<i1")
            out[:, at : at + _SCALE] = scale.view(np.uint8)
            out[:, at + _SCALE : at + _SCALE + size] = steps.view(np.uint8)
            at, source = at + _SCALE + size, source + size
        return out

    def unpack(self, packed: NDArray[np.uint8]) -> Array:
        """The rows that these bytes stand for."""
        packed = np.ascontiguousarray(packed)
        if self.encoding != "int8":
            return packed.view(self._dtype).reshape(packed.shape[0], sum(self.sizes)).astype(np.float32)
        out = np.empty((packed.shape[0], sum(self.sizes)), np.float32)
        at = target = 0
        for size in self.sizes:
            scale = np.ascontiguousarray(packed[:, at : at + _SCALE]).view("<f4")
            steps = np.ascontiguousarray(packed[:, at + _SCALE : at + _SCALE + size]).view("<i1")
            out[:, target : target + size] = steps * scale
            at, target = at + _SCALE + size, target + size
        return out


def _scale(largest: Array) -> Array:
    """What one step is worth, in so few digits that 127 steps are exact: rows that are read and packed again stay."""
    bits = (largest / 127).astype("<f4").view("<u4")
    return ((bits + np.uint32(127)) & ~np.uint32(127)).view("<f4")
