"""RunConfig: everything that decides a run's result, as written to its ``config.toml``."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import tomli_w

from fedforget.errors import ConfigError, RunError, unknown_choice
from fedforget.protocol.attack import Attack
from fedforget.protocol.device_config import DeviceConfig
from fedforget.runtime.files import write_file
from fedforget.runtime.settings import build_from
from fedforget.server.config_file import FORMAT, read_config
from fedforget.server.server_config import ServerConfig

#: How the devices are reached: all in one process, or over a network.
ENGINES = ["simulation", "flower"]


def new_id() -> str:
    """A random id for a federation."""
    return secrets.token_hex(8)


@dataclass(frozen=True, kw_only=True)
class RunConfig(DeviceConfig):
    """The configuration of a run: of its devices, of its server, and of its data.

    ``joins`` has the round of each user who joins after the first round, ``attack`` the malicious users. ``data`` holds
    the digest of the training interactions and, if they came from a named set or a file, how to load and split them.
    ``engine`` is one of ``ENGINES``, ``id`` identifies the federation, ``trajectory`` is its trajectory in service.
    """

    server: ServerConfig = field(default_factory=ServerConfig)
    joins: Mapping[int | str, int] = field(default_factory=dict)
    attack: Attack | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "simulation"
    id: str = field(default_factory=new_id)
    trajectory: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "server", build_from(ServerConfig, self.server, "server"))
        if self.engine not in ENGINES:
            raise unknown_choice("engine", self.engine, ENGINES)
        if self.server.aggregation.needs_counts:
            object.__setattr__(self, "training", replace(self.training, send_counts=True))
        training = replace(self.training, sum_over=self.server.smallest_sum)
        object.__setattr__(self, "training", training)
        rule = self.server.aggregation.name
        if self.model.closed_form and rule != "mean":
            raise ConfigError(
                f"aggregation is {rule!r} for {self.model.name}.",
                "Use 'mean': the devices of this model send gradients, which the server averages.",
            )

    def to_dict(self) -> dict[str, Any]:
        joins = sorted(self.joins.items(), key=str)
        return {
            "format": FORMAT,
            "id": self.id,
            "trajectory": self.trajectory,
            "engine": self.engine,
            **super().to_dict(),
            "server": self.server.to_dict(),
            "data": dict(self.data),
            "joins": [
                {"user": user if isinstance(user, str) else int(user), "round": int(round_)} for user, round_ in joins
            ],
            **({"attack": self.attack.to_dict()} if self.attack is not None else {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read from nested tables; missing ones have their defaults."""
        readers: dict[str, Callable[[Any], Any]] = {
            "server": lambda table: table,
            "joins": lambda joins: {entry["user"]: entry["round"] for entry in joins},
            "attack": lambda table: Attack(**table),
            "data": dict,
            "engine": str,
            "id": str,
            "trajectory": int,
        }
        device = cls.parse(values)
        for name in values:
            if name not in readers and name not in device and name != "format":
                raise unknown_choice("setting", name, sorted({*readers, *device}))
        return cls(**device, **{name: read(values[name]) for name, read in readers.items() if name in values})

    def without(self, users: Collection[int | str]) -> Self:
        """The configuration without some users in ``joins`` and ``attack``."""
        joins = {user: round_ for user, round_ in self.joins.items() if user not in users}
        return replace(self, joins=joins, attack=None if self.attack is None else self.attack.without(users))

    def save(self, path: Path) -> None:
        write_file(path, tomli_w.dumps(_without_none(self.to_dict())).encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the ``config.toml`` of a run folder; only ``attack`` may be missing."""
        values = read_config(path)
        try:
            if missing := [setting.name for setting in fields(cls) if setting.name not in {*values, "attack"}]:
                raise KeyError(missing[0])
            return cls.from_dict(values)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}.", "Restore it or start a new run.") from error
        except ConfigError as error:
            raise type(error)(f"{path}: {error.problem}", error.hint) from error


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables without settings that are None, which TOML cannot express; such settings are None by default."""
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def first_difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> str | None:
    """The first difference of two configurations, with both values; None if they are equal."""
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if found := first_difference(a, b, f"{prefix}{name}."):
                return found
        elif a != b:
            return f"{prefix}{name} is {a!r} there, {b!r} here"
    return None


def comparable(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what may differ between two openings of a run: id, trajectory, location of the data.

    A simulated run has its own copy of its data; on a network the catalogue must be the same.
    """
    rest = {name: value for name, value in values.items() if name not in ("id", "trajectory", "data")}
    on_network = values.get("engine", "simulation") != "simulation"
    return {**rest, "data": {"digest": values.get("data", {}).get("digest")}} if on_network else rest


def digest_of(config: RunConfig) -> str:
    """A digest of the settings of a run that never change, but for the users that erasures remove."""
    settings = {**comparable(config.to_dict()), "id": config.id}
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()
