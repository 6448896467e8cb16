"""NumberFormat: an encoding applied to rows that consist of tensors of fixed sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.protocol.encoding import Encoding


class NumberFormat:
    """Packs and unpacks rows that consist of tensors of these sizes, one after another."""

    def __init__(self, encoding: Encoding, sizes: Sequence[int]) -> None:
        self._encoding = encoding
        self.sizes = [size for size in sizes if size]
        self.size = encoding.row_size(self.sizes)

    def pack(self, rows: Array) -> NDArray[np.uint8]:
        """The bytes of each row."""
        return self._encoding.pack(rows, self.sizes)

    def unpack(self, packed: NDArray[np.uint8]) -> Array:
        """The rows from their bytes."""
        return self._encoding.unpack(np.ascontiguousarray(packed), self.sizes)
