"""Arrays in Flower's records, read with the distrust that anything from a network deserves."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedforget.errors import FedForgetError

#: The head of the .npy files that ``pack`` writes, and no other: numpy's own reader evaluates what it is given.
HEAD = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<>|][a-zA-Z]\d+)', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n",
    re.DOTALL,
)


class MessageError(FedForgetError):
    """A message that does not say what it should; ``problem`` is the reason that goes into the history."""


def pack(**arrays: NDArray[Any]) -> ArrayRecord:
    """Arrays by name."""
    return ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})


def unpack(record: ArrayRecord, name: str, kind: type[np.generic], dims: int) -> NDArray[Any]:
    """One array of a record, which must be of this kind and have so many dimensions.

    Nothing is allocated before it is clear that as many numbers have come as the head says.
    """
    if name not in record:
        raise MessageError(f"the message has no {name}")
    data = record[name].data
    head = HEAD.match(data)
    if head is None or head.end() != 10 + int.from_bytes(head[1], "little"):
        raise MessageError(f"its {name} cannot be read")
    shape = tuple(int(size) for size in re.findall(rb"\d+", head[3]))
    if head[2] != np.dtype(kind).str.encode() or len(shape) != dims:
        raise MessageError(f"its {name} are {head[2].decode()} in {len(shape)} dimensions")
    if len(data) - head.end() != math.prod(shape) * np.dtype(kind).itemsize:
        raise MessageError(f"its {name} are not as many as it says")
    try:
        return np.frombuffer(data, kind, offset=head.end()).reshape(shape).copy()
    except ValueError as error:  # no numbers, in a shape that has no room for them
        raise MessageError(f"its {name} cannot be read") from error
