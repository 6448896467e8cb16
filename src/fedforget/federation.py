"""Federation: the facade that puts data, devices, engine and server together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedforget.data import Interactions, load
from fedforget.device.devices import Compute, Devices
from fedforget.device.log import DeviceLog, MemoryLog, SqliteLog
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.engines.simulation import Simulation
from fedforget.errors import ConfigError, RunError, RunWarning
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.files import make_folder, only_writer
from fedforget.models import Public, Recommender
from fedforget.models.parameters import Array
from fedforget.randomness import UserId
from fedforget.server.history import History, RoundRecord
from fedforget.server.metrics import MetricsFile
from fedforget.server.roster import Roster
from fedforget.server.rounds import Protocol, run_rounds
from fedforget.settings import Settings, comparable, first_difference, read_config

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
        self._prepare_folder()
        self._history = History(self.path, model.dense_layout, self.settings.protocol.snapshot_every)
        self._log: DeviceLog = MemoryLog() if self.path is None else SqliteLog(self.path / "devices" / "log.sqlite")
        self._metrics = MetricsFile(None if self.path is None else self.path / "metrics.jsonl")
        self.devices = Devices(
            train, model, self.settings.sampler, self.settings.training, self._log, seed=seed, compute=compute
        )
        self._clients = Simulation(self.devices)
        self._tidy = False
        self._take_up()

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
        return list(self._history.record(self.rounds).participants)

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
            self._metrics.append(_metrics_line(record))
            if test is not None and evaluate_every is not None and record.round % evaluate_every == 0:
                self._metrics.append({"round": record.round, **self.evaluate(test).to_dict()})
            if on_round is not None:
                on_round(record)

        with nullcontext() if self.path is None else only_writer(self.path):
            self._make_sound()
            self._run(self.rounds + more if more is not None else rounds or 0, after_round)
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
        self._history.close()
        self._log.close()

    def __repr__(self) -> str:
        return f"Federation({self.model.name}, {self.train.n_users:,} users, {self.rounds} rounds, {self.path})"

    def _run(self, until: int, after_round: Callable[[RoundRecord, Public], None]) -> None:
        run_rounds(
            until,
            self.public,
            self._history,
            self._clients,
            self._roster,
            self.settings.protocol,
            epochs=self.settings.training.epochs,
            seed=self.settings.seed,
            on_round=after_round,
        )

    def _prepare_folder(self) -> None:
        """Make a new run folder, or check that the one there was made with the same settings."""
        if self.path is None:
            return
        config = self.path / "config.toml"
        if config.exists():
            if difference := first_difference(comparable(read_config(config)), comparable(self.settings.to_dict())):
                raise RunError(
                    f"{self.path} holds a run with other settings: {difference}.",
                    "Use the same settings to continue it, or another folder for a new run.",
                )
            return
        if self.path.is_dir() and any(file.suffix != ".part" for file in self.path.iterdir()):
            raise RunError(f"{self.path} has files in it but is not a run folder.", "Choose an empty or a new folder.")
        make_folder(self.path)
        self.settings.save(config)

    def _take_up(self) -> None:
        """Load the state to go on from, writing nothing: others may read, or train, in the same folder."""
        self.rounds = self._last_sound_round()
        if self._history.last_round < 0:
            self.public = self.model.init_public(self.train.n_items, self.settings.seed)
        else:
            self.public = self._history.snapshot(self.rounds)
        self.devices.restore(self.rounds)

    def _last_sound_round(self) -> int:
        """The last round that history, snapshots and device logs all know."""
        finished, logged = self._history.last_round, self._log.last_round()
        sound = 0
        if finished >= 0:
            usable = self._history.usable_rounds()
            sound = next((r for r in usable if self._history.last_active_round(r) <= logged), -1)
        if sound < 0:
            raise RunError(
                f"{self.path} has no snapshot to go on from.", "Restore its snapshots folder, or start a new run."
            )
        if sound < finished or (finished < 0 < logged):
            warnings.warn(
                f"{self.path} is taken up at round {sound}: its history ends at round {max(finished, 0)}, the log of "
                f"its devices at {logged}, and snapshots may be missing. Training computes the rest again.",
                RunWarning,
                stacklevel=4,
            )
        return sound

    def _make_sound(self) -> None:
        """Before training: load anew if the files have moved on, and drop from them what no round accounts for."""
        active = self._history.last_active_round(self.rounds)
        if self._history.last_round != self.rounds or self._log.last_round() != active:
            self._take_up()
            self._clients.roll_back(self.rounds)
            self._tidy = False
        if not self._tidy:
            self._tidy_up()
            self._tidy = True

    def _tidy_up(self) -> None:
        """Let history, snapshots and metrics hold the finished rounds, and nothing that a crash left behind."""
        self._history.forget_after(self.rounds)
        if self._history.last_round < 0:
            self._history.commit(RoundRecord(0, [], None, 0.0), self.public)
        self._metrics.drop_after(self.rounds)
        known = {line["round"] for line in self._metrics.read() if "loss" in line}
        for round_ in range(1, self.rounds + 1):
            if round_ not in known:
                self._metrics.append(_metrics_line(self._history.record(round_)))


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


def _metrics_line(record: RoundRecord) -> dict[str, Any]:
    return {
        "round": record.round,
        "loss": record.loss,
        "seconds": round(record.seconds, 6),
        "clients": len(record.participants),
        "failures": len(record.failures),
    }
