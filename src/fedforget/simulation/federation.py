"""Federation: a federated recommender with server and devices in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import polars as pl

from fedforget.data import Interactions
from fedforget.data.growth import Added, check_times, grow, with_ids, without_known
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.errors import ConfigError, RunError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.models import MODELS, Recommender
from fedforget.models.parameters import Array
from fedforget.protocol.log import Log
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.coordinator import Coordinator, OnRequest
from fedforget.server.erasure import Erasure
from fedforget.server.history import OnRound, RoundRecord
from fedforget.server.presets import configure, with_settings
from fedforget.server.receipt import Receipt
from fedforget.server.request import ItemsOf, PartialErasure
from fedforget.server.roster import Roster
from fedforget.server.run import Run
from fedforget.server.run_config import RunConfig, new_id
from fedforget.server.trajectory import Trajectory
from fedforget.server.unlearning import Method
from fedforget.simulation import recommendations
from fedforget.simulation.clients import Offline, SimulatedClients
from fedforget.simulation.device_files import DeviceFiles
from fedforget.simulation.opening import open_steadily
from fedforget.simulation.partial import items_by_user, partial_erasure
from fedforget.simulation.poisoned import PoisonedClients
from fedforget.simulation.stored_data import report_difference, stored_parts
from fedforget.simulation.summed import SummedClients


class Federation(Coordinator):
    """A simulated federation: every user of ``train`` is one client.

    ``config`` is a ``RunConfig``, or a model, which is then trained as its ``preset`` says. Further ``settings`` are
    fields of ``RunConfig``: ``seed``, ``sampler``, ``training``, ``server``, ``log``, ``joins``, ``attack``. ``test``
    is the held-out part of the data: it is what ``evaluate`` uses by default, and ``recommend`` leaves it out.

    With a ``path`` the run is stored in that folder, with a copy of its data: creating it again with the same settings,
    or ``Federation.open(path)``, continues after the last finished round. ``public`` are the global parameters after
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
        test: Interactions | None = None,
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
            chosen = with_settings(config, **settings)
        else:
            chosen = configure(settings.pop("model", config), **settings)
        self.path = None if path is None else Path(path)
        stored = None if self.path is None else stored_parts(self.path)
        self.train, self.test = stored or (train, test)
        if stored:
            members = set(self.members)
            named = {*chosen.joins, *(chosen.attack.users if chosen.attack else ())}
            chosen = chosen.without([user for user in named if user not in members])
        if source is None:
            source = {key: value for key, value in chosen.data.items() if key != "digest"}
        digest = chosen.data.get("digest") if stored else None
        chosen = replace(chosen, data={"digest": digest or train.digest, **source})
        self.offline = offline
        self._compute = compute or Compute()
        self._compute.check(chosen.model)
        if not stored:
            Roster(self.members, chosen.joins)  # checks the joins before the run folder is created
        super().__init__(Run(self.path, chosen, DeviceFiles.open))
        if stored is None:
            self._files.data.create(self.train, self.test)
        elif train is not self.train:
            self._compare(train)
        with self._run.noting():
            self._start()
            if stored is not None:
                self._files.announce_losses(self.history, self.rounds, self.train, quota=self.config.log.quota > 0)

    @classmethod
    def open(
        cls,
        path: str | Path,
        train: Interactions | None = None,
        *,
        model: Recommender | None = None,
        compute: Compute | None = None,
    ) -> Self:
        """Open a run folder, with the data that is stored in it. If you pass ``train`` too, differences are reported.

        Pass a model of your own if it is neither registered nor in an installed package.
        """
        if model is not None:
            MODELS.register(type(model))

        return open_steadily(Path(path), lambda: cls._opened(Path(path), train, compute))

    @classmethod
    def _opened(cls, path: Path, train: Interactions | None, compute: Compute | None) -> Self:
        config = RunConfig.load(path / "config.toml")
        if train is None:
            parts = stored_parts(path)
            if parts is None:
                raise RunError(f"{path} has no data.", "Pass its training data: Federation.open(path, train).")
            train = parts[0]
        return cls(train, config, path=path, compute=compute)

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

    def add(self, interactions: Interactions, *, readmit: bool = False) -> Added:
        """Add interactions, also of new users and with new items; they count from the next round on.

        Users who were forgotten are refused unless ``readmit``; a readmitted user starts anew.
        """
        check_times(interactions, time.time())
        with self._run.locked():
            self._refuse_while_waiting()
            self._prepare_to_write()
            since = self.rounds + 1
            known, index_of = self.train.n_users, self.train.user_index_of
            new = [user for user in interactions.user_ids.tolist() if index_of.get(user, known) >= known]
            option = "add(interactions, readmit=True), --readmit"
            again = self._forgotten_before(new, readmit, "Nothing was added.", option)
            new_part = without_known(interactions, self.train, *([] if self.test is None else [self.test]))
            train, added = grow(self.train, new_part, since)
            added = replace(added, known=len(interactions) - len(new_part), readmitted=len(again))
            if added.interactions or added.items:
                roster = self._roster()
                number = self.history.membership.additions() + 1
                self._files.data.add(number, new_part, since=since)
                self.history.extend(number, since, added.users, added.items)
                self._take_in(train, added, roster)
            return added

    def _take_in(self, train: Interactions, added: Added, roster: Roster) -> None:
        """Continue with more interactions."""
        self._cached_members = train, [*self.members, *added.users]
        self.train = train
        if self.test is not None:
            self.test = with_ids(self.test, train.user_ids, train.item_ids)
        self.devices.extend(train)
        self._cached_roster = self.members, roster.extended(added.users, added.since)

    def set_source(self, source: Mapping[str, Any]) -> None:
        """Store where the data comes from, such as the name of its file; the run itself has a copy."""
        with self._run.locked():
            self._run.set_config(replace(self.config, data={**self.config.data, **source}))

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
        other = Federation(self.train, config, test=self.test, path=path, compute=self._compute, offline=self.offline)
        if other.history.last_round >= 0:
            raise RunError(f"{path} already holds a run.", "Choose another folder for the copy.")
        if self.history.last_round >= 0:
            self._run.current.copy_to(other._run.current)
            other._start()
        return other

    def forget(
        self,
        users: Sequence[UserId] = (),
        method: Method | None = None,
        *,
        user: UserId | None = None,
        items: ItemsOf | Sequence[UserId] | None = None,
        require: float | None = None,
        on_round: OnRound | None = None,
        on_request: OnRequest | None = None,
    ) -> Receipt:
        """Forget users: rebuild the model as if they had never taken part, and erase everything about them.

        With ``items`` some interactions of users who stay are forgotten: ``forget(user=17, items=[50, 181])``, or
        ``forget([3], items={17: [50, 181]})`` together with other users. The rounds from the first one in which such a
        user trained on the items are replayed. See ``Coordinator.forget`` for the rest.
        """
        return self._forget(users, method, require, on_round, items=items_by_user(user, items), on_request=on_request)

    def scores(self, user: UserId) -> Array:
        """The scores of all items for a user, in the order of ``train.item_ids``."""
        return self.devices.scorer(self.public)(self.train.user_index(user))

    def evaluate(self, test: Interactions | None = None, ranking: Ranking | None = None) -> Evaluation:
        """Rank each user's test items in both protocols; forgotten users are left out.

        ``test`` is by default the held-out part that the federation was created with.
        """
        chosen = self.test if test is None else test
        if chosen is None or (test is None and not len(chosen)):
            raise ConfigError("There is no test part.", "Pass one: evaluate(test), or Federation(train, test=test).")
        n_items = self.public.items.shape[0]
        train, part = self.train.up_to(n_items), self._aligned(chosen).up_to(n_items)
        return evaluate(self.devices.scorer(self.public), train, part, ranking or Ranking(), self.devices.workers)

    def _aligned(self, test: Interactions) -> Interactions:
        """Test data with the ids of the training data, without forgotten users."""
        if test.n_users > self.train.n_users:
            test = test.only([user for user in self.members if user in test.user_index_of])
        begins = all(
            np.array_equal(ids[: other.size], other)
            for ids, other in ((self.train.user_ids, test.user_ids), (self.train.item_ids, test.item_ids))
        )
        return with_ids(test, self.train.user_ids, self.train.item_ids) if begins else test

    def recommend(
        self,
        user: UserId,
        k: int = 10,
        *,
        candidates: Sequence[UserId] | None = None,
        exclude: Sequence[UserId] = (),
    ) -> list[tuple[UserId, float]]:
        """The k best items for a user, best first, with their scores; without all items that the user has.

        ``candidates`` are the items to choose from (default: all), ``exclude`` items to leave out.
        """
        self._run.check_current()
        return recommendations.for_user(self, user, k, candidates, exclude)

    def recommend_all(
        self,
        k: int = 10,
        users: Sequence[UserId] | None = None,
        *,
        candidates: Sequence[UserId] | None = None,
        exclude: Sequence[UserId] = (),
    ) -> pl.DataFrame:
        """The k best items for several users, by default all: a data frame of user, rank, item and score."""
        self._run.check_current()
        return recommendations.for_users(self, self.members if users is None else users, k, candidates, exclude)

    def item_vectors(self) -> pl.DataFrame:
        """The item vectors: a data frame of item and vector."""
        return recommendations.item_vectors(self)

    def user_vectors(self) -> pl.DataFrame:
        """The user vectors of a model that scores by a dot product: a data frame of user and vector.

        The dot product with an item vector is the score of an item that the user does not have.
        """
        return recommendations.user_vectors(self)

    def __repr__(self) -> str:
        return f"Federation({self.model.name}, {self.train.n_users:,} users, {self.rounds} rounds, {self.path})"

    def _branch(self, new: Trajectory, erasure: Erasure, done: int) -> Clients:
        remaining, log = _remaining(self.train, erasure), cast(DeviceFiles, new.devices).log
        devices = self.devices.branch(log, done, remaining, items_changed=bool(erasure.partial))
        if not new.is_at(done):
            devices.roll_back(done)
        if done <= erasure.start:
            devices.set_private(done)
        return self._reached(devices)

    def _digest_without(self, erasure: Erasure) -> str:
        return _remaining(self.train, erasure).digest

    def _after_erasure(self, erasure: Erasure) -> None:
        self.train = _remaining(self.train, erasure)
        self.test = None if self.test is None else _remaining(self.test, erasure)
        self._start()

    def _erasure(
        self,
        users: Sequence[UserId],
        method: Method | None,
        items: ItemsOf | None = None,
        partial: Sequence[PartialErasure] = (),
    ) -> Erasure:
        wanted = {**{part.user: part.items for part in partial}, **(items or {})}
        parts = [partial_erasure(self, user, unwanted, users) for user, unwanted in wanted.items()]
        return Erasure(self._run, self.members, users, method, parts)

    def _roll_back_devices(self, round_: int) -> None:
        self.devices.roll_back(round_)

    def _reached(self, devices: Devices) -> Clients:
        """Devices as the server sees them: some malicious if there is an attack, summed if aggregation is secure."""
        clients: Clients = SimulatedClients(devices, self.offline)
        if (attack := self.config.attack) is not None:
            clients = PoisonedClients(clients, attack, self.config.seed, self.model.update_layout)
        return SummedClients(clients, devices) if self.config.server.secure else clients

    def _start(self) -> None:
        """Load server and devices from the trajectory in service."""
        self.devices = Devices(
            self.train, self.config, self._files.log, self._compute, size=lambda round_: self.history.size(round_)
        )
        self._load()
        self.devices.restore(self.rounds)

    @property
    def _files(self) -> DeviceFiles:
        return cast(DeviceFiles, self._run.current.devices)

    def _compare(self, given: Interactions) -> None:
        """Report data that was passed in and is not in the run; it may have users who were forgotten."""
        members = set(self.members)
        forgotten = self.history.membership.suppressed(
            [user for user in given.user_ids.tolist() if user not in members]
        )
        known = [self.train, *([] if self.test is None else [self.test])]
        report_difference(self.path, given, without_known(given.without(forgotten), *known))


def _remaining(data: Interactions, erasure: Erasure) -> Interactions:
    """The interactions that an erasure does not remove."""
    remaining = data.without(erasure.users)
    items = {part.user: part.items for part in erasure.partial}
    return remaining.without_items(items) if items else remaining
