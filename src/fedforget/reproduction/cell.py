"""Cell: one federation, trained once, and one way to recover it. The unit of a reproduction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedforget.device.log.settings import Log
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.experiments.ways import WAYS, Way
from fedforget.models import Recommender, build_model
from fedforget.presets import recipe
from fedforget.server.unlearning import FRU, Method

#: γmax, R and the initialisation are chosen once, for all cells: see docs/decisions/0003 and 0007.
GAMMA = 4.0
#: Settings that only matter where a step has several rounds.
STEPPING = ("stride", "limit", "steps", "fraction", "lr_scale")


@dataclass(frozen=True)
class Setting:
    """A federation to be trained, with a share of malicious users (0: none); the seed also decides the split."""

    dataset: str
    model: str
    malicious: float
    seed: int
    rounds: int = 200
    sampler: str = "mixed"
    beta: float = 0.5

    @property
    def key(self) -> str:
        """A name for folders."""
        sampling = "" if (self.sampler, self.beta) == ("mixed", 0.5) else f"-{self.sampler}-{self.beta:g}"
        return f"{Path(self.dataset).stem}-{self.model}-{self.malicious:g}{sampling}-{self.rounds}-{self.seed}"

    def build_model(self) -> Recommender:
        """The model as in the paper, the same in every cell."""
        return recipe("paper", build_model(self.model)).model

    def build_sampler(self) -> Sampler:
        """The sampler with the default R."""
        return Sampler(self.sampler, beta=self.beta)


@dataclass(frozen=True)
class Treatment:
    """A way to recover, by its name, where wanted with another share of kept rows (α), selection or λ."""

    way: str
    alpha: float | None = None
    selection: str | None = None
    speedup: float | None = None

    def resolve(self) -> Way:
        """The way itself."""
        way = WAYS[self.way]
        if self.alpha is not None or self.selection is not None:
            log = Log(way.log.encoding, self.selection or way.log.selection, self.alpha or way.log.alpha)
            way = replace(way, log=log)
        if self.speedup is not None:
            assert isinstance(way.method, FRU)
            way = replace(way, method=replace(way.method, speedup=self.speedup))
        return way

    @property
    def key(self) -> str:
        """A name for folders."""
        return "-".join(f"{value:g}" if isinstance(value, float) else value for value in asdict(self).values() if value)


@dataclass(frozen=True)
class Cell:
    """A treatment of a trained federation."""

    setting: Setting
    treatment: Treatment

    def fingerprint(self) -> str:
        """Short for every setting that decides what comes out: a result under another one is out of date."""
        way = self.treatment.resolve().for_model(self.setting.build_model())
        settings: list[Any] = [
            asdict(self.setting), self.setting.build_model().settings(), asdict(self.setting.build_sampler()),
            _paper_training(), GAMMA, None if way.method is None else _settings(way.method), asdict(way.log),
        ]  # fmt: skip
        return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()


def _settings(method: Method) -> dict[str, Any]:
    """A method's settings, without those that it does not use: they came later and change no cell."""
    settings = method.settings()
    if settings.get("stride", 1) > 1 or settings.get("steps"):
        return settings
    return {name: value for name, value in settings.items() if name not in STEPPING}


def _paper_training() -> dict[str, Any]:
    """The paper's local training, without settings that it does not have: they came later and change no cell."""
    return {name: value for name, value in asdict(LocalTraining()).items() if name != "refit"}
