"""Quantised lengths (L2 norms): what calibration needs of an old update.

A single length takes one byte: its logarithm in steps of an eighth of a power of two (about 9%), or 0 for no length.
The lengths of one update's rows are close together, since Adam moves rows that are used equally often equally far.
They are stored as the smallest and the largest, one byte each, and for each row one of five levels between the two, or
0 for no length. Three rows with six possible values each fit into one byte.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact

Bytes = NDArray[np.uint8]

_STEPS = 8.0
_OFFSET = 193.0
#: Levels from the smallest to the largest length of an update's rows.
_LEVELS = 5


@exact
def place_of(length: np.float32) -> float:
    """The place of a length on the scale of codes; 0 for no length."""
    return _STEPS * np.log2(np.float64(length)) + _OFFSET if length > 0 else 0.0


@exact
def length_at(place: float) -> np.float32:
    """The length at a place on the scale."""
    return np.float32(2.0 ** ((place - _OFFSET) / _STEPS))


@exact
def code_of(length: np.float32) -> int:
    """A length as one byte."""
    return 0 if length <= 0 else int(min(255.0, max(1.0, np.floor(place_of(length) + 0.5))))


@exact
def length_of(code: int) -> np.float32:
    """The length that a byte encodes."""
    return np.float32(0) if code == 0 else length_at(float(code))


@exact
def packed_size(n: int) -> int:
    """The bytes of n packed lengths."""
    return 2 + (n + 2) // 3


@exact
def pack_lengths(lengths: Array, out: Bytes) -> None:
    """Write the lengths of one update's rows, each as the nearest of the levels.

    The smallest and the largest are always the end levels, so that unpacking and packing again changes nothing.
    """
    smallest, largest = np.float32(np.inf), np.float32(0)
    for length in lengths:
        if length > 0:
            smallest, largest = min(smallest, length), max(largest, length)
    low, high = code_of(smallest) if largest > 0 else 0, code_of(largest)
    out[0], out[1] = low, high
    out[2:] = 0
    step = (high - low) / (_LEVELS - 1)
    between = np.empty(_LEVELS - 1, np.float32)
    for level in range(_LEVELS - 1):
        between[level] = length_at(low + (level + 0.5) * step)
    for i in range(lengths.size):
        digit = 0
        if lengths[i] > 0:
            digit = 1
            if high > low and lengths[i] == largest:
                digit = _LEVELS
            elif high > low and lengths[i] > smallest:
                for level in range(_LEVELS - 1):
                    digit += lengths[i] >= between[level]
        out[2 + i // 3] += digit * (1, 6, 36)[i % 3]


@exact
def unpack_lengths(packed: Bytes, out: Array) -> None:
    """Read the lengths of one update's rows."""
    low, high = float(packed[0]), float(packed[1])
    length_of_digit = np.zeros(_LEVELS + 1, np.float32)
    for level in range(_LEVELS):
        length_of_digit[level + 1] = length_at(low + level * (high - low) / (_LEVELS - 1))
    for i in range(out.size):
        out[i] = length_of_digit[packed[2 + i // 3] // (1, 6, 36)[i % 3] % 6]
