"""Settings: everything that decides a run's result, as written to its ``config.toml``."""

from __future__ import annotations

import secrets
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import tomli_w

from fedforget.attacks import Attack
from fedforget.device.log.settings import Log
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError, RunError, one_of
from fedforget.files import write_file
from fedforget.models import MODELS, Recommender, build_model
from fedforget.server.optimiser import SGD
from fedforget.server.rounds import Protocol

FORMAT = 2
#: How the devices are reached: all in one process, or over a network.
ENGINES = ["simulation", "flower"]


@dataclass(frozen=True)
class Settings:
    """Model, sampler, local training, log, protocol and seed of a run, and which data it was made for.

    ``id`` names the federation and ``trajectory`` the one of its trajectories that is in service. ``data`` holds the
    digest of the training interactions and, if they came from a named set or a file, how to load and split them again.
    ``joins`` names the users who join after the first round, ``attack`` those who send poison. ``engine`` is one of
    ``ENGINES``.
    """

    model: Recommender
    sampler: Sampler = field(default_factory=Sampler)
    training: LocalTraining = field(default_factory=LocalTraining)
    protocol: Protocol = field(default_factory=Protocol)
    seed: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    joins: Mapping[int | str, int] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    attack: Attack | None = None
    engine: str = "simulation"
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    trajectory: int = 1

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise one_of("engine", self.engine, ENGINES)
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}.", "Give a whole number from 0 to 2^63 - 1.")
        if self.training.refit and not self.model.dot_product:
            raise ConfigError(
                f"refit is set, but {self.model.name} does not score by a dot product.",
                "Leave refit out; it fits user vectors of models that do, such as lightgcn and mf.",
            )
        if self.model.closed_form and self.protocol.aggregation != "mean":
            raise ConfigError(
                f"aggregation is {self.protocol.aggregation!r} for {self.model.name}.",
                "Its devices send parts of a gradient, of which the server needs the mean: use 'mean'.",
            )

    def to_dict(self) -> dict[str, Any]:
        """As nested tables, for TOML."""
        return {
            "format": FORMAT,
            "id": self.id,
            "trajectory": self.trajectory,
            "seed": int(self.seed),
            "engine": self.engine,
            "model": self.model.settings(),
            "sampler": asdict(self.sampler),
            "training": asdict(self.training),
            "log": asdict(self.log),
            "protocol": self.protocol.to_dict(),
            "data": dict(self.data),
            "joins": [
                {"user": user if isinstance(user, str) else int(user), "round": int(round_)}
                for user, round_ in sorted(self.joins.items(), key=str)
            ],
            **({"attack": self.attack.to_dict()} if self.attack is not None else {}),
        }

    def at(self, id_: str, trajectory: int) -> Settings:
        """The same settings for another trajectory, or under the id that the run has already."""
        return replace(self, id=id_, trajectory=trajectory)

    def without(self, users: Collection[int | str], train: str) -> Settings:
        """The settings after some users left, for the next trajectory; ``train`` is the digest of the data then."""
        return replace(
            self,
            trajectory=self.trajectory + 1,
            data={**self.data, "digest": train},
            joins={user: round_ for user, round_ in self.joins.items() if user not in users},
            attack=None if self.attack is None else self.attack.without(users),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], model: Recommender | None = None) -> Self:
        """From nested tables. A model that is not built in must be passed in."""
        if model is None and values["model"]["name"] not in MODELS:
            raise RunError(
                f"The run was made with model {values['model']['name']!r}, which is not built in.",
                "Open it from Python and pass the model: Federation.open(path, model=...).",
            )
        model = build_model(**values["model"]) if model is None else model
        return cls(
            model=model,
            sampler=Sampler(**values["sampler"]),
            training=LocalTraining(**values["training"]),
            protocol=Protocol.from_dict(values["protocol"]),
            seed=values["seed"],
            data=values["data"],
            joins={entry["user"]: entry["round"] for entry in values["joins"]},
            log=Log(**values["log"]),
            attack=Attack(**values["attack"]) if "attack" in values else None,
            engine=values.get("engine", "simulation"),
            id=values["id"],
            trajectory=values["trajectory"],
        )

    def save(self, path: Path) -> None:
        """Write as TOML."""
        write_file(path, tomli_w.dumps(self.to_dict()).encode())

    @classmethod
    def load(cls, path: Path, model: Recommender | None = None) -> Self:
        """Read from TOML, naming what is wrong with it."""
        values = read_config(path)
        try:
            return cls.from_dict(values, model)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} cannot be understood: {error}.", "Restore it or start a new run.") from error


def read_config(path: Path) -> dict[str, Any]:
    """The tables of a ``config.toml`` of the format that this version reads."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(
            f"{path.parent} is not a run folder: it has no config.toml.",
            "Make one with: fedforget train ml-100k --out FOLDER.",
        ) from error
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} cannot be read: {error}.", "Restore it or start a new run in another folder."
        ) from error
    if values.get("format") != FORMAT:
        raise RunError(
            f"{path} has format {values.get('format')!r}; this version of fedforget reads format {FORMAT}.",
            "Use the version of fedforget that wrote it, or start a new run in another folder.",
        )
    return values


def comparable(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what may change between visits to a run: its trajectory, and where its data lies.

    Settings that runs of earlier versions do not have stand there with the value that they had in effect.
    """
    rest = {"engine": "simulation"} | {
        name: value for name, value in values.items() if name not in ("id", "trajectory")
    }
    return {
        **rest,
        "data": {"digest": values.get("data", {}).get("digest")},
        "training": {"refit": False} | values.get("training", {}),
        "protocol": {"optimiser": SGD().settings()} | values.get("protocol", {}),
    }


def first_difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> str | None:
    """The first setting in which two configurations differ, with both values; None if they agree."""
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if found := first_difference(a, b, f"{prefix}{name}."):
                return found
        elif a != b:
            return f"{prefix}{name} is {a!r} there, {b!r} here"
    return None
