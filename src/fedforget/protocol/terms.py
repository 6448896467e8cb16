"""Terms: what a device agreed to when its user joined a federation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedforget.errors import RunError
from fedforget.models import GlobalParameters
from fedforget.models.parameters import Array
from fedforget.protocol import reasons
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Recall, Task

#: The item table and the other global tensors that a device received.
Parameters = tuple[Array, Array]


class RefusedError(RunError):
    """An order that a device refuses, with one of the ``reasons``."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Refused: {reason}.")
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Terms(DeviceConfig):
    """The id of the federation, the number of its items, and the configuration of its devices.

    A server may ask for fewer epochs, for a replay, but everything else must be as agreed.
    """

    federation: str
    n_items: int

    def parameters(self, received: Parameters) -> GlobalParameters:
        """The received global parameters, checked against the shapes of the agreed model."""
        items, dense = received
        if items.shape != (self.n_items, self.model.dim) or dense.shape != (self.model.dense_layout.size,):
            raise RefusedError(reasons.OTHER_MODEL)
        return GlobalParameters(items, dense, self.model.dense_layout)

    def check_factors(self, factors: Factors) -> None:
        """Raise ``RefusedError`` if the factors do not have the shape of the model."""
        if factors.items.shape != (self.n_items,) or factors.dense.shape != (len(self.model.update_layout.shapes),):
            raise RefusedError(reasons.OTHER_MODEL)

    def check_task(self, task: Task) -> None:
        """Raise ``RefusedError`` if a task has more epochs than agreed, or another number of items."""
        if not 1 <= getattr(task, "epochs", 1) <= self.training.epochs:
            raise RefusedError(reasons.TOO_MANY_EPOCHS)
        if isinstance(task, Recall) and task.n_items != self.n_items:
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
