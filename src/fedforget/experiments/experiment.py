"""Experiment: one trained federation and one unlearning variant, the unit of the reproduction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedforget.experiments.variants import VARIANTS, Variant
from fedforget.models import Recommender
from fedforget.protocol.sampler import SAMPLERS, Sampler
from fedforget.protocol.training import LocalTraining
from fedforget.server.presets import configure
from fedforget.server.unlearning import FRU, Method

#: γmax of the attack in all experiments (docs/decisions/0003 and 0007).
GAMMA = 4.0
#: Method settings that only matter if a step has several rounds.
STEPPING = ("stride", "limit", "steps", "fraction", "lr_scale")


@dataclass(frozen=True)
class Setting:
    """A federation to be trained. ``malicious`` is the fraction of malicious users; the seed also decides the split."""

    dataset: str
    model: str
    malicious: float
    seed: int
    rounds: int = 200
    sampler: str = "mixed"
    beta: float = 0.5

    @property
    def key(self) -> str:
        """A folder name."""
        sampling = "" if (self.sampler, self.beta) == ("mixed", 0.5) else f"-{self.sampler}-{self.beta:g}"
        return f"{Path(self.dataset).stem}-{self.model}-{self.malicious:g}{sampling}-{self.rounds}-{self.seed}"

    def build_model(self) -> Recommender:
        """The model with the paper's settings."""
        return configure(self.model, "paper").model

    def build_sampler(self) -> Sampler:
        return SAMPLERS.build(self.sampler, beta=self.beta)


@dataclass(frozen=True)
class Experiment:
    """A variant run on a trained federation, optionally with another α, selection or λ than its own."""

    setting: Setting
    variant: str
    alpha: float | None = None
    selection: str | None = None
    replay_fraction: float | None = None

    @property
    def key(self) -> str:
        """A folder name, unique within the setting."""
        values = (self.variant, self.alpha, self.selection, self.replay_fraction)
        return "-".join(f"{value:g}" if isinstance(value, float) else value for value in values if value)

    def columns(self) -> dict[str, Any]:
        """The columns of the results file that identify the experiment."""
        own = (self.variant, self.alpha, self.selection, self.replay_fraction)
        return asdict(self.setting) | dict(zip(("way", "alpha", "selection", "speedup"), own, strict=True))

    @classmethod
    def from_columns(cls, row: dict[str, Any]) -> Experiment:
        """The inverse of ``columns``; other columns are ignored."""
        setting = Setting(**{name: row[name] for name in Setting.__dataclass_fields__})
        return cls(setting, row["way"], row["alpha"], row["selection"], row["speedup"])

    def resolve(self) -> Variant:
        """The variant with this experiment's own settings."""
        variant = VARIANTS[self.variant]
        log, method = variant.log, variant.method
        log = replace(log, selection=self.selection or log.selection, alpha=self.alpha or log.alpha)
        if self.replay_fraction is not None:
            assert isinstance(method, FRU)
            method = replace(method, replay_fraction=self.replay_fraction)
        return replace(variant, log=log, method=method)

    def fingerprint(self) -> str:
        """A hash of all settings that affect the result. A result with another fingerprint is outdated."""
        model = self.setting.build_model()
        variant = self.resolve().for_model(model)
        training = {name: value for name, value in LocalTraining().to_dict().items() if name != "refit"}
        method = None if variant.method is None else _method_settings(variant.method)
        sampler = self.setting.build_sampler().settings()
        settings = [asdict(self.setting), model.settings(), sampler, training, GAMMA, method, variant.log.to_dict()]
        return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()


def _method_settings(method: Method) -> dict[str, Any]:
    """The settings that the method uses. Settings added later without effect must not change a fingerprint."""
    settings = method.settings()
    if settings.get("stride", 1) > 1 or settings.get("steps"):
        return settings
    return {name: value for name, value in settings.items() if name not in STEPPING}
