"""Federation: the facade that puts data, devices, engine and server together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedforget.data import Interactions, load
from fedforget.device.devices import Compute, Devices
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.engines.simulation import Simulation
from fedforget.errors import ConfigError, RunError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.models import Public, Recommender
from fedforget.models.parameters import Array
from fedforget.randomness import UserId
from fedforget.run import Run
from fedforget.server.history import RoundRecord
from fedforget.server.roster import Roster
from fedforget.server.rounds import Protocol, run_rounds
from fedforget.settings import Settings, read_config

OnRound = Callable[[RoundRecord], None]


class Federation:
    """A federated recommender: every user of ``train`` is one client.

    With a ``path`` the run lives in that folder and survives its process: building it again with the same settings,
    or ``Federation.open(path)``, goes on after the last finished round. ``public`` are the public parameters after
    ``rounds`` rounds.
    """

    public: Public
    rounds: int

    def __init__(
        self,
        train: Interactions,
        model: Recommender,
        *,
        seed: int = 0,
        path: str | Path | None = None,
        sampler: Sampler | None = None,
        training: LocalTraining | None = None,
        protocol: Protocol | None = None,
        joins: Mapping[UserId, int] | None = None,
        compute: Compute | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        if (train.counts == 0).any():
            user = train.user_ids.tolist()[int(np.argmin(train.counts))]
            raise ConfigError(
                f"User {user!r} has no training interactions.", "Drop such users, or split with a smaller test share."
            )
        self.train = train
        self.path = None if path is None else Path(path)
        self.settings = Settings(
            model,
            sampler or Sampler(),
            training or LocalTraining(),
            protocol or Protocol(),
            seed,
            {"digest": train.digest, **(source or {})},
            joins or {},
        )
        self._roster = Roster(train.user_ids.tolist(), joins)
        compute = compute or Compute()
        compute.check(model)
        self._run = Run(self.path, self.settings)
        self.devices = Devices(
            train, model, self.settings.sampler, self.settings.training, self._run.log, seed=seed, compute=compute
        )
        self._clients = Simulation(self.devices)
        self._tidy = False
        self._take_up()
        self.devices.restore(self.rounds)

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
            compute=compute,
            source=source,
        )

    @property
    def model(self) -> Recommender:
        """The recommender being trained."""
        return self.settings.model

    def last_cohort(self) -> list[UserId]:
        """The users who took part in the last round."""
        return list(self._run.history.record(self.rounds).participants)

    def fit(
        self,
        rounds: int | None = None,
        *,
        more: int | None = None,
        test: Interactions | None = None,
        evaluate_every: int | None = None,
        on_round: OnRound | None = None,
    ) -> Self:
        """Train until ``rounds`` rounds are done in all, or for ``more`` rounds.

        A federation that was stopped goes on where it was, with the result of an unbroken run. With ``test`` and
        ``evaluate_every`` the accuracy over the rounds goes into ``metrics.jsonl``.
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

        def after_round(record: RoundRecord, public: Public) -> None:
            self.public, self.rounds = public, record.round
            self._run.note(record)
            if test is not None and evaluate_every is not None and record.round % evaluate_every == 0:
                self._run.metrics.append({"round": record.round, **self.evaluate(test).to_dict()})
            if on_round is not None:
                on_round(record)

        with self._run.locked():
            self._make_sound()
            run_rounds(
                self.rounds + more if more is not None else rounds or 0,
                self.public,
                self._run.history,
                self._clients,
                self._roster,
                self.settings.protocol,
                epochs=self.settings.training.epochs,
                seed=self.settings.seed,
                on_round=after_round,
            )
        return self

    def scores(self, user: UserId) -> Array:
        """The scores of all items for a user, in the order of ``train.item_ids``."""
        own = self.train.items_of(self.train.user_index(user))
        return self.model.score(self.devices.private(user), self.public, own)

    def evaluate(self, test: Interactions, ranking: Ranking | None = None) -> Evaluation:
        """Rank each user's test items, in both protocols."""
        users = self.train.user_ids.tolist()
        return evaluate(
            lambda place: self.scores(users[place]), self.train, test, ranking or Ranking(), self.devices.workers
        )

    def recommend(self, user: UserId, k: int = 10) -> list[tuple[UserId, float]]:
        """The k best items that the user has not interacted with, best first, each with its score."""
        if k < 1:
            raise ConfigError(f"k is {k}.", "Ask for at least one recommendation.")
        scores = self.scores(user).astype(np.float64)
        own = self.train.items_of(self.train.user_index(user))
        scores[own] = -np.inf
        best = np.argsort(-scores, kind="stable")[: min(k, scores.size - own.size)]
        return list(zip(self.train.item_ids[best].tolist(), scores[best].tolist(), strict=True))

    def close(self) -> None:
        """Let go of the run's files."""
        self._run.close()

    def __repr__(self) -> str:
        return f"Federation({self.model.name}, {self.train.n_users:,} users, {self.rounds} rounds, {self.path})"

    def _take_up(self) -> None:
        """Find the round to go on from and load its public parameters, writing nothing."""
        self.rounds = self._run.last_sound_round()
        begun = self._run.history.last_round >= 0
        self.public = (
            self._run.history.snapshot(self.rounds)
            if begun
            else self.model.init_public(self.train.n_items, self.settings.seed)
        )

    def _make_sound(self) -> None:
        """Before training: load anew if the files have moved on, and drop from them what no round accounts for."""
        if not self._run.stands_at(self.rounds):
            self._take_up()
            self._clients.roll_back(self.rounds)
            self._tidy = False
        if not self._tidy:
            self._run.tidy_up(self.rounds, self.public)
            self._tidy = True


def load_parts(path: str | Path, folder: str | Path | None = None) -> tuple[Interactions, Interactions]:
    """The training and test parts of a run whose data came from a named set or a file."""
    source = read_config(Path(path) / "config.toml").get("data", {})
    if "name" not in source:
        raise RunError(
            "The run's data was passed in from Python, so it cannot be loaded again.",
            "Open it from Python: Federation.open(path, train).",
        )
    data = load(source["name"], folder=folder, **source.get("options", {}))
    train, test = data.split(source.get("test", 0.2), source.get("split_seed", 0))
    if train.digest != source.get("digest"):
        raise RunError(
            f"The data of {source['name']!r} is not what this run was trained on.",
            "Restore the original file, or start a new run in another folder.",
        )
    return train, test
