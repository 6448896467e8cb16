"""Terms: what a device agreed to when its user joined a federation."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.errors import RunError
from fedforget.models import GlobalParameters
from fedforget.models.parameters import Array
from fedforget.protocol import reasons
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.factors import Factors
from fedforget.protocol.order import Sizes
from fedforget.protocol.tasks import Task

#: The item table and the other global tensors that a device received.
Parameters = tuple[Array, Array]


#: The largest catalogue that a device accepts.
MOST_ITEMS = 1 << 24
#: The last round that a device accepts.
LAST_ROUND = (1 << 31) - 2


class RefusedError(RunError):
    """An order that a device refuses, with one of the ``reasons``."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Refused: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class CatalogueSizes:
    """The number of items from each of some rounds on, in ascending order."""

    sizes: Sizes

    @property
    def largest(self) -> int:
        """The number of all items."""
        return self.sizes[-1][1]

    def in_round(self, round_: int) -> int:
        """The number of items that count in a round."""
        return self.sizes[max(bisect_right(self.sizes, (round_, self.largest)) - 1, 0)][1]

    def first_rounds(self, items: NDArray[np.int32]) -> NDArray[np.int32]:
        """The round from which each of some items counts; items beyond the catalogue never do."""
        rounds = np.array([*(round_ for round_, _ in self.sizes), np.iinfo(np.int32).max], np.int32)
        return rounds[np.searchsorted([size for _, size in self.sizes], items, side="right")]


@dataclass(frozen=True, kw_only=True)
class Terms(DeviceConfig):
    """The id of the federation, the number of items at its start, and the configuration of its devices.

    A server may ask for fewer epochs, for a replay, and add items, but everything else must be as agreed.
    """

    federation: str
    n_items: int

    def catalogue(self, sizes: Sizes) -> CatalogueSizes:
        """The sizes of the catalogue that came with an order, checked: it begins as agreed and only grows."""
        sizes = sizes or ((0, self.n_items),)
        grows = all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(sizes))
        if sizes[0] != (0, self.n_items) or not grows or sizes[-1][1] > MOST_ITEMS:
            raise RefusedError(reasons.OTHER_MODEL)
        return CatalogueSizes(sizes)

    def parameters(self, received: Parameters, sizes: CatalogueSizes, round_: int = 0) -> GlobalParameters:
        """The received global parameters, checked against the agreed model and the catalogue.

        They must have a row for every item of the round.
        """
        items, dense = received
        allowed = [size for _, size in sizes.sizes if size >= sizes.in_round(round_)]
        if items.shape not in [(size, self.model.dim) for size in allowed]:
            raise RefusedError(reasons.OTHER_MODEL)
        if dense.shape != (self.model.dense_layout.size,):
            raise RefusedError(reasons.OTHER_MODEL)
        return GlobalParameters(items, dense, self.model.dense_layout)

    def check_factors(self, factors: Factors, n_items: int) -> None:
        """Raise ``RefusedError`` if the factors do not have the shape of the model."""
        if factors.items.shape != (n_items,) or factors.dense.shape != (len(self.model.update_layout.shapes),):
            raise RefusedError(reasons.OTHER_MODEL)

    def check_task(self, task: Task) -> None:
        """Raise ``RefusedError`` if a task has more epochs than agreed, or a round that cannot be."""
        if not 1 <= getattr(task, "epochs", 1) <= self.training.epochs:
            raise RefusedError(reasons.TOO_MANY_EPOCHS)
        if not 0 <= getattr(task, "counted_in", 0) <= LAST_ROUND:
            raise RefusedError(reasons.OTHER_MODEL)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "federation": self.federation, "n_items": self.n_items}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Terms:
        """Read from nested tables. None may be missing, since a user did not agree to a default."""
        try:
            if missing := [field.name for field in fields(cls) if field.name not in values]:
                raise KeyError(missing[0])
            federation, n_items = str(values["federation"]), int(values["n_items"])
            return cls(federation=federation, n_items=n_items, **cls.parse(values))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"The terms of the federation cannot be read: {error}.",
                "Server and device need the same version of fedforget. Enrol again with a new invitation.",
            ) from error

    def to_json(self) -> str:
        """The terms as stored on the device."""
        return json.dumps(self.to_dict(), sort_keys=True)
