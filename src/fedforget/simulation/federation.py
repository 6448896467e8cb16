"""Federation: a federated recommender with server and devices in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from fedforget.data import Interactions
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.log import LogStore, MemoryStore, PackedStore, SqliteStore
from fedforget.device.log.device_log import DeviceLog, open_log
from fedforget.errors import ConfigError, RunError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.models import MODELS, Recommender
from fedforget.models.parameters import Array
from fedforget.protocol.log import Log
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.coordinator import Coordinator
from fedforget.server.history import OnRound, RoundRecord
from fedforget.server.presets import configure
from fedforget.server.roster import Roster
from fedforget.server.run import Run
from fedforget.server.run_config import RunConfig, new_id
from fedforget.server.trajectory import Trajectory
from fedforget.simulation.clients import Offline, SimulatedClients
from fedforget.simulation.poisoned import PoisonedClients
from fedforget.simulation.run_data import load_parts, members_only


class Federation(Coordinator):
    """A simulated federation: every user of ``train`` is one client.

    ``config`` is a ``RunConfig``, or a model, which is then trained as its ``preset`` says. Further ``settings`` are
    fields of ``RunConfig``: ``seed``, ``sampler``, ``training``, ``server``, ``log``, ``joins``, ``attack``.

    With a ``path`` the run is stored in that folder: creating it again with the same settings, or
    ``Federation.open(path)``, continues after the last finished round. ``public`` are the global parameters after
    ``rounds`` rounds. ``compute`` sets where local training runs; it does not affect results. ``offline`` returns
    whether a user's device is offline in a round.
    """

    devices: Devices
    _cached_members: tuple[Interactions, list[UserId]] | None = None

    def __init__(
        self,
        train: Interactions,
        config: RunConfig | Recommender | str | None = None,
        *,
        path: str | Path | None = None,
        compute: Compute | None = None,
        offline: Offline | None = None,
        source: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if (train.counts == 0).any():
            user = train.user_ids.tolist()[int(np.argmin(train.counts))]
            raise ConfigError(
                f"User {user!r} has no training interactions.", "Drop such users, or split with a smaller test share."
            )
        if isinstance(config, RunConfig):
            chosen = replace(config, **settings)
        else:
            chosen = configure(settings.pop("model", config), **settings)
        self.path = None if path is None else Path(path)
        self.train = train if self.path is None else members_only(self.path, train)
        forgotten = set(train.user_ids.tolist()).difference(self.members)
        if source is None:
            source = {key: value for key, value in chosen.data.items() if key != "digest"}
        chosen = replace(chosen.without(forgotten), data={"digest": self.train.digest, **source})
        self.offline = offline
        self._compute = compute or Compute()
        self._compute.check(chosen.model)
        Roster(self.members, chosen.joins)  # checks the joins before the run folder is created
        super().__init__(Run(self.path, chosen, _open_logs))
        self._start()

    @classmethod
    def open(
        cls,
        path: str | Path,
        train: Interactions | None = None,
        *,
        model: Recommender | None = None,
        compute: Compute | None = None,
    ) -> Self:
        """Open a run folder. Data from a named set or a file is loaded again; otherwise pass ``train``.

        Pass a model of your own if it is neither registered nor in an installed package.
        """
        if model is not None:
            MODELS.register(type(model))
        config = RunConfig.load(Path(path) / "config.toml")
        return cls(load_parts(path)[0] if train is None else train, config, path=path, compute=compute)

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

        A federation that was interrupted continues after its last round, with the same result as without the
        interruption. With ``test`` and ``evaluate_every`` the accuracy is written to ``metrics.jsonl``. ``cohorts``
        may name the users of some rounds, which are then not drawn at random.
        """
        if (rounds is None) == (more is None):
            raise ConfigError("fit() takes either rounds or more.", "fit(rounds=200) trains until 200 are done in all.")
        if (rounds or more or 0) < 0:
            raise ConfigError(f"fit() was asked for {rounds or more} rounds.", "Give 0 or more.")
        if (test is None) != (evaluate_every is None) or (evaluate_every is not None and evaluate_every < 1):
            raise ConfigError(
                f"evaluate_every is {evaluate_every}, test is {test!r}.", "Give both or neither, and at least 1."
            )

        def after_round(record: RoundRecord) -> None:
            if test is not None and evaluate_every is not None and record.round % evaluate_every == 0:
                self._run.current.metrics.append({"round": record.round, **self.evaluate(test).to_dict()})
            if on_round is not None:
                on_round(record)

        in_order = {}
        for round_, users in (cohorts or {}).items():
            places = sorted({self.train.user_index(user) for user in users})
            in_order[round_] = [self.members[place] for place in places]
        self._train(rounds, more, after_round, in_order)
        return self

    @property
    def members(self) -> list[UserId]:
        """The users of the federation; the same list until users are forgotten."""
        if self._cached_members is None or self._cached_members[0] is not self.train:
            self._cached_members = self.train, self.train.user_ids.tolist()
        return self._cached_members[1]

    @property
    def n_items(self) -> int:
        return self.train.n_items

    def clients(self) -> Clients:
        return self._reached(self.devices)

    def copy(self, path: str | Path | None = None, *, log: Log | None = None) -> Federation:
        """An independent federation in the same state, to try several things with.

        ``log`` are the log settings of the copy; it cannot log more than this federation does.
        """
        log = log or self.config.log
        if log.whole_updates and not self.config.log.whole_updates:
            raise ConfigError(
                f"The logs hold lengths only, so a copy cannot log {log.to_dict()['encoding']}.",
                "Train with Log('float32') instead.",
            )
        config = replace(self.config, log=log, id=new_id(), trajectory=1)
        other = Federation(self.train, config, path=path, compute=self._compute, offline=self.offline)
        if other.history.last_round >= 0:
            raise RunError(f"{path} already holds a run.", "Choose another folder for the copy.")
        if self.history.last_round >= 0:
            self._run.current.copy_to(other._run.current)
            other._start()
        return other

    def scores(self, user: UserId) -> Array:
        """The scores of all items for a user, in the order of ``train.item_ids``."""
        return self.devices.scorer(self.public)(self.train.user_index(user))

    def evaluate(self, test: Interactions, ranking: Ranking | None = None) -> Evaluation:
        """Rank each user's test items in both protocols; forgotten users are left out."""
        if test.n_users > self.train.n_users:
            test = test.only(self.members)
        return evaluate(self.devices.scorer(self.public), self.train, test, ranking or Ranking(), self.devices.workers)

    def recommend(self, user: UserId, k: int = 10) -> list[tuple[UserId, float]]:
        """The k best items that the user has not interacted with, best first, with their scores."""
        if k < 1:
            raise ConfigError(f"k is {k}.", "Ask for at least one recommendation.")
        scores = self.scores(user).astype(np.float64)
        seen = self.train.items_of(self.train.user_index(user))
        scores[seen] = -np.inf
        best = np.argsort(-scores, kind="stable")[: min(k, scores.size - seen.size)]
        return list(zip(self.train.item_ids[best].tolist(), scores[best].tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Federation({self.model.name}, {self.train.n_users:,} users, {self.rounds} rounds, {self.path})"

    def _branch(self, new: Trajectory, forgotten: Sequence[UserId], start: int, done: int) -> Clients:
        devices = self.devices.branch(cast(DeviceLog, new.logs), done, forgotten)
        if not new.is_at(done):
            devices.roll_back(done)
        if done <= start:
            devices.set_private(done)
        return self._reached(devices)

    def _digest_without(self, users: Sequence[UserId]) -> str:
        return self.train.without(users).digest

    def _after_erasure(self, users: Sequence[UserId]) -> None:
        self.train = self.train.without(users)
        self._start()

    def _roll_back_devices(self, round_: int) -> None:
        self.devices.roll_back(round_)

    def _reached(self, devices: Devices) -> Clients:
        """Devices as the server sees them, some of them malicious if there is an attack."""
        clients, attack = SimulatedClients(devices, self.offline), self.config.attack
        if attack is None:
            return clients
        return PoisonedClients(clients, attack, self.config.seed, self.model.update_layout)

    def _start(self) -> None:
        """Load server and devices from the trajectory in service."""
        log = cast(DeviceLog, self._run.current.logs)
        self.devices = Devices(self.train, self.config, log, self._compute)
        self._load()
        self.devices.restore(self.rounds)


def _open_logs(folder: Path | None, config: RunConfig) -> DeviceLog:
    """The logs of all devices, in a folder or in memory."""
    store: LogStore
    if folder is None:
        store = MemoryStore()
    else:
        store = (PackedStore if config.log.store == "packed" else SqliteStore)(folder, config.id)
    return open_log(config, config.id, store)
