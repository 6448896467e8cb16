"""AuditSettings: everything that decides the worlds of an audit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedforget.data import Interactions
from fedforget.errors import ConfigError
from fedforget.evaluation.forgetting.scores import Flags, Ints
from fedforget.evaluation.forgetting.suspects import Suspects
from fedforget.experiments.forgetting.cases import (
    ATTACKED,
    CASES,
    candidates,
    check_cases,
    taking_part,
    world_seed,
)
from fedforget.experiments.variants import Variant, needs_whole_updates
from fedforget.protocol.attack import Attack
from fedforget.protocol.log import Log
from fedforget.server.run_config import RunConfig, comparable

#: The log of a federation from which every method can start.
WHOLE = Log("float32", "all")
#: The first worlds of each case are compared with each other and with Retrain number by number.
COMPARED = 8
#: Fewer worlds leave an attack too few others to learn from.
FEWEST = 8
#: The version of what is stored of a world.
FORMAT = 2


@dataclass(frozen=True)
class World:
    """One world of a case: worlds 2k and 2k + 1 are a pair, in which the halves of the candidates are swapped."""

    case: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.case}-{self.number:04d}"


@dataclass(frozen=True)
class AuditSettings:
    """How the worlds of an audit are made. ``config`` is the configuration of each federation, but for its seed.

    In each world of a case a half of the candidates takes part, and all other users; then that half is forgotten, by
    each of the ``methods``. ``leavers`` is their share of all users.
    """

    train: Interactions
    test: Interactions
    config: RunConfig
    methods: Mapping[str, Variant]
    cases: tuple[str, ...]
    worlds: int
    leavers: float
    rounds: int
    seed: int

    def __post_init__(self) -> None:
        check_cases(self.cases)
        if self.worlds < FEWEST or self.worlds % 2:
            hint = f"Give an even number, at least {FEWEST}; 32 and more are enough for most verdicts."
            raise ConfigError(f"worlds is {self.worlds}.", hint)
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}.", "Give at least 1.")
        for case in self.cases:
            candidates(case, self.train, self.leavers, self.seed)

    @property
    def all_worlds(self) -> list[World]:
        """The worlds of all cases; first those of all cases that are compared, so that a first result comes early."""
        worlds = [World(case, number) for case in self.cases for number in range(self.worlds_of(case))]
        return sorted(worlds, key=lambda world: (world.number // 2, self.cases.index(world.case)))

    def worlds_of(self, case: str) -> int:
        """The number of worlds of a case."""
        return self.worlds if case in ATTACKED else min(self.worlds, COMPARED)

    @cached_property
    def _suspects(self) -> dict[str, Suspects]:
        return {}

    def suspects(self, case: str) -> Suspects:
        """The candidates of a case, and what the attacker knows."""
        if case not in self._suspects:
            users = candidates(case, self.train, self.leavers, self.seed)
            self._suspects[case] = Suspects(self.train, users, self.seed)
        return self._suspects[case]

    def inside(self, world: World) -> Flags:
        """Which candidates take part in a world."""
        return taking_part(world.case, world.number, self.train, self.suspects(world.case).users, self.seed)

    def ids(self, users: Ints) -> list[Any]:
        """The ids of users."""
        ids: list[Any] = self.train.user_ids[users].tolist()
        return ids

    @cached_property
    def whole_updates(self) -> bool:
        """Whether a method needs logs of whole updates."""
        return needs_whole_updates(self.methods)

    def config_of(self, world: World) -> RunConfig:
        """The configuration of the federation of a world."""
        attack = None
        if CASES[world.case].malicious:
            attack = Attack(self.ids(self.suspects(world.case).users[self.inside(world)]))
        seed = world_seed(world.case, world.number, self.seed)
        log = WHOLE if self.whole_updates else self.config.log
        return replace(self.config, seed=seed, log=log, attack=attack)

    @cached_property
    def digest(self) -> str:
        """A digest of everything that decides a world, but for the number of worlds and the cases."""
        described = json.dumps([self.describe(), self.train.digest, self.test.digest], sort_keys=True)
        return hashlib.blake2b(described.encode(), digest_size=8).hexdigest()

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        server, given = self.config.server, self.methods.items()
        methods = {name: one.method and one.method.for_server(server).settings() for name, one in given}
        logs = {name: variant.log.to_dict() for name, variant in self.methods.items() if variant.log.whole_updates}
        config = {key: value for key, value in comparable(self.config.to_dict()).items() if key not in OF_A_WORLD}
        values = {"leavers": self.leavers, "rounds": self.rounds, "seed": self.seed}
        return {
            "config": config,
            "methods": methods,
            "logs": logs,
            **values,
            "format": FORMAT,
            "users": int(np.size(self.train.user_ids)),
        }


#: Parts of a configuration that differ between worlds.
OF_A_WORLD = ("seed", "attack", "engine", "format")
