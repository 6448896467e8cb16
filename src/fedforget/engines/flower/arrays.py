"""Arrays in Flower's records, read with the distrust that anything from a network deserves."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedforget.errors import FedForgetError


class MessageError(FedForgetError):
    """A message that does not say what it should; ``problem`` is the reason that goes into the history."""


def pack(**arrays: NDArray[Any]) -> ArrayRecord:
    """Arrays by name."""
    return ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})


def unpack(record: ArrayRecord, name: str, kind: type[np.generic], dims: int) -> NDArray[Any]:
    """One array of a record, which must be of this kind and have so many dimensions.

    The head is read before anything is allocated: it could promise more numbers than have come.
    """
    if name not in record:
        raise MessageError(f"the message has no {name}")
    data = record[name].data
    buffer = BytesIO(data)
    try:
        version = npy.read_magic(buffer)
        read_head = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_head(buffer)
    except (ValueError, EOFError, SyntaxError) as error:
        raise MessageError(f"its {name} cannot be read") from error
    if dtype != np.dtype(kind) or len(shape) != dims:
        raise MessageError(f"its {name} are {dtype} in {len(shape)} dimensions")
    if len(data) - buffer.tell() != math.prod(shape) * dtype.itemsize:
        raise MessageError(f"its {name} are not as many as it says")
    array: NDArray[Any] = np.load(BytesIO(data), allow_pickle=False)
    return array
