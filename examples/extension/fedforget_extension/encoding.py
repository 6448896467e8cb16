"""A log encoding: numbers in 16 bits with the range of float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import fedforget as ff


@dataclass(frozen=True)
class BFloat16(ff.Encoding):
    """The upper 16 bits of each float32."""

    name: ClassVar[str] = "bfloat16"

    def row_size(self, sizes: Sequence[int]) -> int:
        """Bytes of an encoded row."""
        return 2 * sum(sizes)

    def pack(self, rows: NDArray[np.float32], sizes: Sequence[int]) -> NDArray[np.uint8]:
        """Encode rows: one row of bytes each."""
        halves = (np.ascontiguousarray(rows, "<f4").view("<u4") >> 16).astype("<u2")
        return halves.view(np.uint8).reshape(len(rows), self.row_size(sizes))

    def unpack(self, packed: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.float32]:
        """Decode rows."""
        halves = np.ascontiguousarray(packed).view("<u2").reshape(len(packed), sum(sizes))
        return (halves.astype("<u4") << 16).view("<f4")
