"""DeviceConfig: the part of a run's configuration that devices need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedforget.errors import ConfigError
from fedforget.models import MODELS, Recommender
from fedforget.protocol.bounds import Bounds
from fedforget.protocol.log import Log
from fedforget.protocol.sampler import SAMPLERS, MixedSampler, Sampler
from fedforget.protocol.training import LocalTraining
from fedforget.runtime.settings import build_from, check_types


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Model, negative sampler, local training, update log, and the seed of every random draw."""

    model: Recommender
    sampler: Sampler = field(default_factory=MixedSampler)
    training: LocalTraining = field(default_factory=LocalTraining)
    log: Log = field(default_factory=Log)
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", MODELS.build(self.model))
        object.__setattr__(self, "sampler", SAMPLERS.build(self.sampler))
        object.__setattr__(self, "training", build_from(LocalTraining, self.training, "training"))
        object.__setattr__(self, "log", build_from(Log, self.log, "log"))
        object.__setattr__(self, "seed", check_types(DeviceConfig, {"seed": self.seed})["seed"])
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}.", "Give a whole number from 0 to 2^63 - 1.")
        if self.training.refit and not self.model.dot_product:
            raise ConfigError(
                f"refit is set, but {self.model.name} does not score by a dot product.",
                "Leave refit out, or use a model that does, such as lightgcn or mf.",
            )

    @property
    def bounds(self) -> Bounds:
        """The bounds on updates."""
        return Bounds(self.model.clip if self.training.clip is None else self.training.clip)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as nested tables of plain values."""
        return {
            "model": self.model.settings(),
            "sampler": self.sampler.settings(),
            "training": self.training.to_dict(),
            "log": self.log.to_dict(),
            "seed": int(self.seed),
        }

    @staticmethod
    def parse(values: Mapping[str, Any]) -> dict[str, Any]:
        """Read the constructor's arguments from nested tables; missing tables are left out."""
        return {name: values[name] for name in ("model", "sampler", "training", "log", "seed") if name in values}
