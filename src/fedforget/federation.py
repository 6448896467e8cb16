"""Federation: the facade that puts data, devices, engine and coordinator together, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedforget.attacks import Attack, Poisoned
from fedforget.coordinator import Coordinator, OnRound
from fedforget.data import Interactions
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.log.settings import Log
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.engines.simulation import Offline, Simulation
from fedforget.errors import ConfigError, RunError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.models import IALS, Recommender
from fedforget.models.parameters import Array
from fedforget.presets import recipe
from fedforget.randomness import UserId
from fedforget.reopening import load_parts, members_only
from fedforget.run import Run
from fedforget.server.clients import Clients
from fedforget.server.history import RoundRecord
from fedforget.server.roster import Roster
from fedforget.server.rounds import Protocol
from fedforget.settings import Settings
from fedforget.trajectory import Trajectory


class Federation(Coordinator):
    """A federated recommender, all of it in this process: every user of ``train`` is one client.

    With a ``path`` the run lives in that folder and survives its process: building it again with the same settings,
    or ``Federation.open(path)``, goes on after the last finished round. ``public`` are the public parameters after
    ``rounds`` rounds. The ``preset`` says how the model is trained (see ``presets``) where ``sampler``, ``training`` or
    ``protocol`` do not. ``offline`` may say whose device is out of reach in which round, to see what happens then.
    """

    devices: Devices
    _listed: tuple[Interactions, list[UserId]] | None = None

    def __init__(
        self,
        train: Interactions,
        model: Recommender | None = None,
        *,
        preset: str = "default",
        seed: int = 0,
        path: str | Path | None = None,
        sampler: Sampler | None = None,
        training: LocalTraining | None = None,
        protocol: Protocol | None = None,
        log: Log | None = None,
        joins: Mapping[UserId, int] | None = None,
        attack: Attack | None = None,
        compute: Compute | None = None,
        source: Mapping[str, Any] | None = None,
        offline: Offline | None = None,
    ) -> None:
        if (train.counts == 0).any():
            user = train.user_ids.tolist()[int(np.argmin(train.counts))]
            raise ConfigError(
                f"User {user!r} has no training interactions.", "Drop such users, or split with a smaller test share."
            )
        self.path = None if path is None else Path(path)
        self.train = train if self.path is None else members_only(self.path, train)
        self.offline = offline
        forgotten = set(train.user_ids.tolist()).difference(self.train.user_ids.tolist())
        joins = {user: round_ for user, round_ in (joins or {}).items() if user not in forgotten}
        attack = None if attack is None else attack.without(forgotten)
        usual = recipe(preset, model or IALS())
        settings = Settings(
            usual.model,
            sampler or usual.sampler,
            training or usual.training,
            protocol or usual.protocol,
            seed,
            {"digest": self.train.digest, **(source or {})},
            joins,
            log or Log(),
            attack,
        )
        self._compute = compute or Compute()
        self._compute.check(usual.model)
        Roster(self.members, joins)
        super().__init__(Run(self.path, settings))
        self._settle_in()

    @classmethod
    def open(
        cls,
        path: str | Path,
        train: Interactions | None = None,
        *,
        model: Recommender | None = None,
        compute: Compute | None = None,
    ) -> Self:
        """Open a run folder. Data from a named set or a file is loaded again; otherwise pass ``train``."""
        settings = Settings.load(Path(path) / "config.toml", model)
        if train is None:
            train, _ = load_parts(path)
        source = {name: value for name, value in settings.data.items() if name != "digest"}
        return cls(
            train,
            settings.model,
            seed=settings.seed,
            path=path,
            sampler=settings.sampler,
            training=settings.training,
            protocol=settings.protocol,
            joins=settings.joins,
            log=settings.log,
            attack=settings.attack,
            compute=compute,
            source=source,
        )

    def fit(
        self,
        rounds: int | None = None,
        *,
        more: int | None = None,
        test: Interactions | None = None,
        evaluate_every: int | None = None,
        on_round: OnRound | None = None,
        cohorts: Mapping[int, Sequence[UserId]] | None = None,
    ) -> Self:
        """Train until ``rounds`` rounds are done in all, or for ``more`` rounds.

        A federation that was stopped goes on where it was, with the result of an unbroken run. With ``test`` and
        ``evaluate_every`` the accuracy over the rounds goes into ``metrics.jsonl``. ``cohorts`` may say who takes part
        in which round, instead of a draw.
        """
        if (rounds is None) == (more is None):
            raise ConfigError("fit() takes either rounds or more.", "fit(rounds=200) trains until 200 are done in all.")
        if (rounds or more or 0) < 0:
            raise ConfigError(f"fit() was asked for {rounds or more} rounds.", "Give 0 or more.")
        if (test is None) != (evaluate_every is None) or (evaluate_every is not None and evaluate_every < 1):
            raise ConfigError(
                f"evaluate_every is {evaluate_every}, test is {test!r}.",
                "Give both or neither, and at least 1.",
            )

        def after_round(record: RoundRecord) -> None:
            if test is not None and evaluate_every is not None and record.round % evaluate_every == 0:
                self._run.current.metrics.append({"round": record.round, **self.evaluate(test).to_dict()})
            if on_round is not None:
                on_round(record)

        cohorts = None if cohorts is None else {r: self._members(users) for r, users in cohorts.items()}
        self._train(rounds, more, after_round, cohorts)
        return self

    @property
    def members(self) -> list[UserId]:
        """Who is in the federation; the same list until users are forgotten."""
        if self._listed is None or self._listed[0] is not self.train:
            self._listed = self.train, self.train.user_ids.tolist()
        return self._listed[1]

    @property
    def n_items(self) -> int:
        """How many items can be recommended."""
        return self.train.n_items

    def clients(self) -> Clients:
        """The devices as they are now."""
        return self.engine(self.devices)

    def branch(self, new: Trajectory, leavers: Sequence[UserId], start: int, done: int) -> Clients:
        """The devices of those who stay on a new trajectory."""
        devices = self.devices.branch(new.log_here, done, leavers)
        if not new.stands_at(done):
            devices.roll_back(done)
        if done <= start:
            devices.settle_private(done)
        return self.engine(devices)

    def settings_without(self, leavers: Sequence[UserId]) -> Settings:
        """The settings once these users have left."""
        return self.settings.without(set(leavers), self.train.without(leavers).digest)

    def _let_go(self, leavers: Sequence[UserId]) -> None:
        self.train = self.train.without(leavers)
        self._settle_in()

    def _roll_back(self, round_: int) -> None:
        self.devices.roll_back(round_)

    def copy(self, path: str | Path | None = None, *, log: Log | None = None) -> Federation:
        """An independent federation that has gone the same way, to try several things with.

        With ``log`` its devices' logs are what they would be under those settings; they cannot hold more than these do.
        """
        settings = self.settings
        log = log or settings.log
        if log.whole_updates and not settings.log.whole_updates:
            raise ConfigError(
                f"The logs hold lengths only, so a copy cannot have {log.encoding}.",
                "Train with Log('float32') instead.",
            )
        other = Federation(
            self.train, self.model, seed=settings.seed, path=path, sampler=settings.sampler, training=settings.training,
            protocol=settings.protocol, log=log, joins=settings.joins, attack=settings.attack, compute=self._compute,
            source={name: value for name, value in settings.data.items() if name != "digest"}, offline=self.offline,
        )  # fmt: skip
        if other.history.last_round >= 0:
            raise RunError(f"{path} already holds a run.", "Choose another folder for the copy.")
        if self.history.last_round >= 0:
            self._run.current.copy_to(other._run.current)
            other._settle_in()
        return other

    def engine(self, devices: Devices) -> Clients:
        """How these devices are reached: in this process, and poisoned if there is an attack."""
        clients = Simulation(devices, self.offline)
        attack = self.settings.attack
        return clients if attack is None else Poisoned(clients, attack, self.settings.seed, self.model.update_layout)

    def scores(self, user: UserId) -> Array:
        """The scores of all items for a user, in the order of ``train.item_ids``."""
        return self.devices.scorer(self.public)(self.train.user_index(user))

    def evaluate(self, test: Interactions, ranking: Ranking | None = None) -> Evaluation:
        """Rank each user's test items, in both protocols; of users who were forgotten nothing is ranked."""
        if test.n_users > self.train.n_users:
            test = test.only(self.members)
        return evaluate(self.devices.scorer(self.public), self.train, test, ranking or Ranking(), self.devices.workers)

    def recommend(self, user: UserId, k: int = 10) -> list[tuple[UserId, float]]:
        """The k best items that the user has not interacted with, best first, each with its score."""
        if k < 1:
            raise ConfigError(f"k is {k}.", "Ask for at least one recommendation.")
        scores = self.scores(user).astype(np.float64)
        own = self.train.items_of(self.train.user_index(user))
        scores[own] = -np.inf
        best = np.argsort(-scores, kind="stable")[: min(k, scores.size - own.size)]
        return list(zip(self.train.item_ids[best].tolist(), scores[best].tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Federation({self.model.name}, {self.train.n_users:,} users, {self.rounds} rounds, {self.path})"

    def _settle_in(self) -> None:
        """Take up the trajectory in service."""
        settings, current = self.settings, self._run.current
        self.devices = Devices(
            self.train, self.model, settings.sampler, settings.training, current.log_here,
            seed=settings.seed, compute=self._compute,
        )  # fmt: skip
        self._take_up()
        self.devices.restore(self.rounds)

    def _members(self, users: Sequence[UserId]) -> list[UserId]:
        """These users in the order in which every cohort is combined."""
        return [self.members[place] for place in sorted({self.train.user_index(user) for user in users})]
