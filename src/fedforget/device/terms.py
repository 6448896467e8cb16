"""Terms: what a device knows of a federation that its user has joined, and what it agreed to do there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedforget.device.log.codec import Codec
from fedforget.device.log.contract import LogStore
from fedforget.device.log.device_log import DeviceLog
from fedforget.device.log.settings import Log
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import RunError
from fedforget.models import Public, Recommender, build_model
from fedforget.models.parameters import Array
from fedforget.replay import Factors

OTHER_MODEL = "its device was sent another model than it agreed to"
TOO_LONG = "its device was asked to train for longer than it agreed to"
REASONS = (OTHER_MODEL, TOO_LONG)

#: The item table and the other public tensors, as they arrive.
Parameters = tuple[Array, Array]


class RefusedError(RunError):
    """An order that a device does not follow, with the reason that it gives."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Refused: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class Terms:
    """The federation's id, and the model, sampler, training and log that a device runs for it.

    A server can ask for other epochs, since a replay is shorter than the training was, but for nothing else.
    """

    federation: str
    n_items: int
    model: Recommender
    sampler: Sampler
    training: LocalTraining
    log: Log
    seed: int

    def open_log(self, store: LogStore) -> DeviceLog:
        """The update log of this federation in a store."""
        model = self.model
        codec = Codec(self.log, self.federation, model.update_layout, model.dim, model.private_layout.size)
        return DeviceLog(self.log, codec, store, seed=self.seed)

    def public(self, sent: Parameters) -> Public:
        """The public parameters that were sent, if they are of the model that was agreed on."""
        items, dense = sent
        self.check_items(len(items))
        if items.shape[1:] != (self.model.dim,) or dense.shape != (self.model.dense_layout.size,):
            raise RefusedError(OTHER_MODEL)
        return Public(items, dense, self.model.dense_layout)

    def check_items(self, n_items: int) -> None:
        """Refuse a model of another catalogue."""
        if n_items != self.n_items:
            raise RefusedError(OTHER_MODEL)

    def check_factors(self, factors: Factors) -> None:
        """Refuse factors that are not of this model's parts."""
        if factors.items.shape != (self.n_items,) or factors.dense.shape != (len(self.model.update_layout.shapes),):
            raise RefusedError(OTHER_MODEL)

    def check_epochs(self, epochs: int) -> None:
        """Refuse to train for longer than was agreed."""
        if not 1 <= epochs <= self.training.epochs:
            raise RefusedError(TOO_LONG)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "federation": self.federation,
            "n_items": self.n_items,
            "model": self.model.settings(),
            "sampler": asdict(self.sampler),
            "training": asdict(self.training),
            "log": asdict(self.log),
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Terms:
        """Read back, naming what is wrong."""
        try:
            return cls(
                str(values["federation"]),
                int(values["n_items"]),
                build_model(**values["model"]),
                Sampler(**values["sampler"]),
                LocalTraining(**values["training"]),
                Log(**values["log"]),
                int(values["seed"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"The terms of the federation cannot be understood: {error}.",
                "Are server and device of the same version of fedforget? Enrol again with a new invitation.",
            ) from error

    def to_json(self) -> str:
        """As kept on the device."""
        return json.dumps(self.to_dict(), sort_keys=True)
