"""Recovery: one attacked federation, and every way to get rid of what the malicious users did, side by side."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedforget.attacks import Attack
from fedforget.coordinator import OnRound
from fedforget.data import Interactions, synthetic
from fedforget.device.compute import Compute
from fedforget.device.log.settings import Log
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError
from fedforget.experiments import measures
from fedforget.experiments.outcome import Accuracy, LogSize, Outcome
from fedforget.experiments.ways import WAYS, Way, needs_whole_updates, ways_for
from fedforget.federation import Federation
from fedforget.models import Recommender
from fedforget.server.unlearning.receipt import Receipt

REFERENCE = "retrain"
SLIM = Log()
WHOLE = Log("float32", "all")
Say = Callable[[str], None]


class Recovery:
    """A federation with malicious users in a work folder, trained once, and copies of it that forget them.

    Each of the ``ways`` that suit the model gets its own copy, with the log that one would keep for it in practice,
    on the same disk. What is spent is removed at the end, by ``close``, unless it is large: some file systems make
    new files many times slower for a while after thousands were deleted, which would count against whoever comes
    next. The log of ``before``, the attacked federation, is whole only if a way needs whole updates (on
    MovieLens-100k NCF's are 34 MB a round); ``slim`` is the same federation with lengths only. With ``malicious=0``
    nobody attacks, and there is nothing to recover from: "attacked" is then plain training.
    """

    def __init__(
        self,
        train: Interactions,
        test: Interactions,
        model: Recommender,
        folder: str | Path,
        *,
        rounds: int = 200,
        malicious: float = 0.2,
        gamma: float = 4.0,
        seed: int = 0,
        ways: Mapping[str, Way] = WAYS,
        training: LocalTraining | None = None,
        sampler: Sampler | None = None,
        preset: str = "default",
        compute: Compute | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        if rounds < 1:
            raise ConfigError(f"rounds is {rounds}.", "Give at least 1: an attack needs a round to take part in.")
        self.ways = ways = ways_for(model, ways)
        self.preset = preset
        self.rounds = rounds
        self.folder = Path(folder)
        attack = Attack.by(train.user_ids.tolist(), malicious, gamma=gamma, seed=seed) if malicious else None
        self.malicious, self.gamma = attack.users if attack else (), gamma
        self.train, self.test = train.without(self.malicious), test.without(self.malicious)
        self.before = Federation(
            train, model, seed=seed, path=self.folder / "before", training=training, sampler=sampler, attack=attack,
            log=WHOLE if needs_whole_updates(ways) else SLIM, compute=compute, source=source, preset=preset,
        )  # fmt: skip
        self.slim = self.before
        self._spent: list[Federation] = []

    def fit(self, on_round: OnRound | None = None) -> None:
        """Train the attacked federation; one that was interrupted goes on."""
        self.before.fit(rounds=max(self.rounds, self.before.rounds), on_round=on_round)
        if self.before.settings.log != SLIM:
            self.slim = self._copy(self.before, "slim", SLIM)

    def warm_up(self) -> None:
        """Go every way once on a few made-up users, so that no timing includes compiling or loading machine code."""
        data = synthetic(users=20, items=30, mean_items=8, seed=0)
        train, test = data.split(test=0.2, seed=0)
        training = LocalTraining(epochs=2)
        with TemporaryDirectory() as folder:
            small = Recovery(
                train, test, self.before.model, folder, rounds=3, ways=self.ways, training=training, preset=self.preset
            )
            small.fit()
            for name in self.ways:
                small.recover(name)
            small.close()

    def compare(
        self,
        *,
        repeats: int = 1,
        curves: Collection[str] = (),
        keep: Collection[str] = (),
        say: Say = lambda line: None,
    ) -> dict[str, Outcome]:
        """Every chosen way's outcome, with its speed-up over the reference, which is measured first."""
        outcomes = {}
        for name in sorted(self.ways, key=lambda name: name != REFERENCE):
            say(self.ways[name].label)
            outcomes[name] = self.recover(name, repeats=repeats, curve=name in curves, keep=name in keep)
        return {name: outcomes[name].against(outcomes.get(REFERENCE)) for name in self.ways}

    def recover(self, name: str, *, repeats: int = 1, curve: bool = False, keep: bool = False) -> Outcome:
        """One way's outcome: the median seconds of some repeats, the accuracy after it, and the log it ran on.

        ``curve`` asks for the accuracy over the rounds as well; ``keep`` leaves the federation as it is then in the
        work folder, under the way's name.
        """
        if repeats < 1:
            raise ConfigError(f"repeats is {repeats}.", "Give at least 1.")
        way = self.ways[name]
        source = self.slim if way.log == SLIM else self.before
        if way.method is None:
            return self._outcome(source, [0.0], measures.log_size(source), None, curve)
        seconds: list[float] = []
        for repeat in range(repeats):
            last = repeat == repeats - 1
            fed = self._copy(source, name if last else f"{name}-{repeat + 1}", way.log)
            if last:
                log = measures.log_size(fed)
            receipt = fed.forget(self.malicious, way.method)
            seconds.append(receipt.seconds)
            if not last:
                self._spend(fed)
        outcome = self._outcome(fed, seconds, log, receipt, curve)
        fed.close()
        if not keep:
            self._spend(fed)
        return outcome

    def popular(self) -> Accuracy:
        """What the most popular items among those who stay would reach, for comparison."""
        return measures.accuracy_of_popularity(self.train, self.test, self.before)

    def close(self) -> None:
        """Give up the attacked federation, files and all."""
        for fed in {fed.path: fed for fed in (self.slim, self.before, *self._spent)}.values():
            _give_up(fed)
        self._spent.clear()

    def _spend(self, fed: Federation) -> None:
        """Have a federation removed, in the end or, if its logs are large, now."""
        if fed.settings.log.whole_updates:
            _give_up(fed)
        else:
            self._spent.append(fed)

    def _copy(self, source: Federation, name: str, log: Log) -> Federation:
        """A copy in the work folder, in place of one that an interrupted attempt may have left."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return source.copy(path, log=log)

    def _outcome(
        self, fed: Federation, seconds: Sequence[float], log: LogSize, receipt: Receipt | None, curve: bool
    ) -> Outcome:
        accuracy = measures.accuracy_after(fed, fed.rounds, self.train, self.test)
        way_there = measures.accuracy_on_the_way(fed, self.train, self.test) if curve else []
        return Outcome(
            seconds=statistics.median(seconds),
            speedup=None,
            accuracy=accuracy,
            log=log,
            receipt=receipt,
            curve=[*way_there, (fed.rounds, accuracy)] if curve else (),
            communication_rounds=receipt.communication_rounds if receipt is not None else 0,
        )


def _give_up(fed: Federation) -> None:
    """Close a federation and remove its folder."""
    assert fed.path is not None
    fed.close()
    shutil.rmtree(fed.path, ignore_errors=True)
