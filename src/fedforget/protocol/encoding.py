"""Encodings: how the update log stores the numbers of an update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedforget.runtime.components import Component, Registry

Numbers = NDArray[np.float32]
Bytes = NDArray[np.uint8]
#: Bytes of the scale before each int8 row or tensor.
_SCALE = 4


@dataclass(frozen=True)
class Encoding(Component):
    """Base class of log encodings: rows of float32 numbers to rows of bytes of one length, and back.

    ``sizes`` are the sizes of the tensors that a row consists of. An encoding of your own implements ``row_size``,
    ``pack`` and ``unpack``; rows that are unpacked and packed again must give the same bytes.
    """

    #: The number that marks log entries of this encoding; encodings of other packages share one.
    code: ClassVar[int] = 127
    #: Whether updates can be read back; if not, the log has only the lengths of their rows and tensors.
    whole_updates: ClassVar[bool] = True

    @abstractmethod
    def row_size(self, sizes: Sequence[int]) -> int:
        """Bytes of an encoded row."""

    @abstractmethod
    def pack(self, rows: Numbers, sizes: Sequence[int]) -> Bytes:
        """Encode rows: one row of bytes each."""

    @abstractmethod
    def unpack(self, packed: Bytes, sizes: Sequence[int]) -> Numbers:
        """Decode rows."""


@dataclass(frozen=True)
class _Float(Encoding):
    dtype: ClassVar[str]

    def row_size(self, sizes: Sequence[int]) -> int:
        return sum(sizes) * np.dtype(self.dtype).itemsize

    def pack(self, rows: Numbers, sizes: Sequence[int]) -> Bytes:
        limit = np.finfo(self.dtype).max
        numbers = rows if self.dtype == "<f4" else np.clip(rows, -limit, limit)
        packed = np.ascontiguousarray(numbers.astype(self.dtype)).view(np.uint8)
        return packed.reshape(rows.shape[0], self.row_size(sizes))

    def unpack(self, packed: Bytes, sizes: Sequence[int]) -> Numbers:
        numbers = np.ascontiguousarray(packed).view(self.dtype).reshape(packed.shape[0], sum(sizes))
        return numbers.astype(np.float32)


@dataclass(frozen=True)
class Float32(_Float):
    """Numbers in single precision, without loss."""

    name: ClassVar[str] = "float32"
    code: ClassVar[int] = 0
    dtype: ClassVar[str] = "<f4"


@dataclass(frozen=True)
class Float16(_Float):
    """Numbers in half precision, clipped to its range."""

    name: ClassVar[str] = "float16"
    code: ClassVar[int] = 1
    dtype: ClassVar[str] = "<f2"


@dataclass(frozen=True)
class Int8(Encoding):
    """Numbers as int8, with a float32 scale before each row or tensor."""

    name: ClassVar[str] = "int8"
    code: ClassVar[int] = 2

    def row_size(self, sizes: Sequence[int]) -> int:
        return sum(sizes) + _SCALE * len(sizes)

    def pack(self, rows: Numbers, sizes: Sequence[int]) -> Bytes:
        out = np.empty((rows.shape[0], self.row_size(sizes)), np.uint8)
        at = source = 0
        for size in sizes:
            part = rows[:, source : source + size]
            scale = _scale(np.abs(part).max(axis=1, keepdims=True))
            steps = np.rint(part / np.where(scale > 0, scale, 1)).astype("<i1")
            out[:, at : at + _SCALE] = scale.view(np.uint8)
            out[:, at + _SCALE : at + _SCALE + size] = steps.view(np.uint8)
            at, source = at + _SCALE + size, source + size
        return out

    def unpack(self, packed: Bytes, sizes: Sequence[int]) -> Numbers:
        out = np.empty((packed.shape[0], sum(sizes)), np.float32)
        at = target = 0
        for size in sizes:
            scale = np.ascontiguousarray(packed[:, at : at + _SCALE]).view("<f4")
            steps = np.ascontiguousarray(packed[:, at + _SCALE : at + _SCALE + size]).view("<i1")
            out[:, target : target + size] = steps * scale
            at, target = at + _SCALE + size, target + size
        return out


@dataclass(frozen=True)
class Lengths(Int8):
    """No updates, only the length (L2 norm) of their rows and tensors; private parameters as int8."""

    name: ClassVar[str] = "lengths"
    code: ClassVar[int] = 3
    whole_updates: ClassVar[bool] = False


ENCODINGS = Registry("encoding", "fedforget.encodings", Encoding, Float32, Float16, Int8, Lengths)


def _scale(largest: Numbers) -> Numbers:
    """The value of one int8 step, rounded so that 127 steps are exact and packing again gives the same bytes."""
    bits = (largest / 127).astype("<f4").view("<u4")
    return ((bits + np.uint32(127)) & ~np.uint32(127)).view("<f4")
