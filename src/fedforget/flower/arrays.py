"""Arrays in Flower's records, checked before they are read."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedforget.errors import FedForgetError

#: The header of the .npy files that ``pack`` writes. Nothing else is accepted: numpy's own reader evaluates the header.
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<>|][a-zA-Z]\d+)', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n",
    re.DOTALL,
)


class MessageError(FedForgetError):
    """A message is malformed; ``problem`` is the reason that goes into the history."""


def pack(**arrays: NDArray[Any]) -> ArrayRecord:
    """Arrays by name."""
    return ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})


def unpack(record: ArrayRecord, name: str, kind: type[np.generic], dims: int) -> NDArray[Any]:
    """One array of a record, which must have this dtype and number of dimensions.

    Nothing is allocated before the size of the data is known to match the header.
    """
    if name not in record:
        raise MessageError(f"the message has no {name}")
    data = record[name].data
    header = HEADER.match(data)
    if header is None or header.end() != 10 + int.from_bytes(header[1], "little"):
        raise MessageError(f"its {name} cannot be read")
    shape = tuple(int(size) for size in re.findall(rb"\d+", header[3]))
    if header[2] != np.dtype(kind).str.encode() or len(shape) != dims:
        raise MessageError(f"its {name} are {header[2].decode()} in {len(shape)} dimensions")
    if len(data) - header.end() != math.prod(shape) * np.dtype(kind).itemsize:
        raise MessageError(f"its {name} do not have the declared size")
    try:
        return np.frombuffer(data, kind, offset=header.end()).reshape(shape).copy()
    except ValueError as error:  # an empty array with a shape that is too large
        raise MessageError(f"its {name} cannot be read") from error
