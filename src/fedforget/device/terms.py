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
from fedforget.models import Recommender, build_model


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
        codec = Codec(self.log, self.federation, model.dense_layout, model.dim, model.private_layout.size)
        return DeviceLog(self.log, codec, store, seed=self.seed)

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
