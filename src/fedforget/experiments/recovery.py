"""Recovery: a federation trained under attack, and copies of it that forget the malicious users."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from fedforget.data import Interactions, synthetic
from fedforget.device.compute import Compute
from fedforget.errors import ConfigError
from fedforget.experiments import machine, measures
from fedforget.experiments.central import popular
from fedforget.experiments.measures import Accuracy, LogSize, Outcome
from fedforget.experiments.variants import VARIANTS, Variant, needs_whole_updates, select_variants, variants_for
from fedforget.models import MODELS, Recommender
from fedforget.protocol.attack import Attack
from fedforget.protocol.log import Log
from fedforget.protocol.sampler import Sampler
from fedforget.protocol.training import LocalTraining
from fedforget.server.history import OnRound
from fedforget.server.receipt import Receipt
from fedforget.simulation.federation import Federation

REFERENCE = "retrain"
SLIM = Log()
WHOLE = Log("float32", "all")
Say = Callable[[str], None]


@dataclass(frozen=True)
class RecoverySettings:
    """How the federation is trained and attacked. With ``malicious=0`` there is no attack."""

    rounds: int = 200
    malicious: float = 0.2
    gamma: float = 4.0
    seed: int = 0
    preset: str = "default"
    training: LocalTraining | None = None
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}.", "Give at least 1.")


class Recovery:
    """Trains a federation under attack once, then runs every variant on its own copy.

    All copies are in ``folder``. Finished copies are deleted in ``close``, unless their logs are large: on some file
    systems deleting thousands of files slows down the following writes, which would distort the timings.
    ``before`` is the attacked federation; its log holds whole updates only if a variant needs them. ``slim`` is the
    same federation with a log of norms.
    """

    def __init__(
        self,
        train: Interactions,
        test: Interactions,
        model: Recommender,
        folder: str | Path,
        settings: RecoverySettings | None = None,
        *,
        variants: Mapping[str, Variant] = VARIANTS,
        compute: Compute | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = settings = settings or RecoverySettings()
        self.variants = variants_for(model, variants)
        self.folder = Path(folder)
        users, seed = train.user_ids.tolist(), settings.seed
        attack = Attack.by(users, settings.malicious, gamma=settings.gamma, seed=seed) if settings.malicious else None
        self.malicious = attack.users if attack else ()
        self.train, self.test = train.without(self.malicious), test.without(self.malicious)
        self.before = Federation(
            train,
            model,
            seed=seed,
            test=test,
            path=self.folder / "before",
            preset=settings.preset,
            training=settings.training,
            sampler=settings.sampler,
            attack=attack,
            log=WHOLE if needs_whole_updates(self.variants) else SLIM,
            compute=compute,
            source=source,
        )
        self.slim = self.before
        self._finished: list[Federation] = []

    def fit(self, on_round: OnRound | None = None) -> None:
        """Train the attacked federation, or resume its training."""
        self.before.fit(rounds=max(self.config.rounds, self.before.rounds), on_round=on_round)
        if self.before.config.log != SLIM:
            self.slim = self._copy(self.before, "slim", SLIM)

    def warm_up(self) -> None:
        """Run every variant once on a small data set, so that no timing includes compilation."""
        train, test = synthetic(users=60, items=30, mean_items=8, seed=0).split(test=0.2, seed=0)
        settings = RecoverySettings(rounds=4, training=LocalTraining(epochs=2), preset=self.config.preset)
        with TemporaryDirectory() as folder:
            small = Recovery(train, test, self.before.model, folder, settings, variants=self.variants)
            small.fit()
            for name in self.variants:
                small.recover(name)
            small.close()

    def compare(
        self, *, repeats: int = 1, curves: Sequence[str] = (), keep: Sequence[str] = (), say: Say = lambda line: None
    ) -> dict[str, Outcome]:
        """The outcome of every variant, with its speed-up over Retrain."""
        outcomes = {}
        for name in sorted(self.variants, key=lambda name: name != REFERENCE):
            say(self.variants[name].label)
            outcomes[name] = self.recover(name, repeats=repeats, curve=name in curves, keep=name in keep)
        if REFERENCE in outcomes:
            for name, outcome in outcomes.items():
                speedup = outcomes[REFERENCE].seconds / outcome.seconds if outcome.seconds else None
                outcomes[name] = replace(outcome, speedup=speedup)
        return {name: outcomes[name] for name in self.variants}

    def recover(self, name: str, *, repeats: int = 1, curve: bool = False, keep: bool = False) -> Outcome:
        """The outcome of one variant, with the median time of the repeats.

        ``curve`` also measures the accuracy over the rounds. ``keep`` leaves the federation in the folder.
        """
        if repeats < 1:
            raise ConfigError(f"repeats is {repeats}.", "Give at least 1.")
        variant = self.variants[name]
        source = self.slim if variant.log == SLIM else self.before
        if variant.method is None:
            return self._outcome(source, measures.log_size(source), [], curve)
        receipts = []
        for repeat in reversed(range(1, repeats)):
            extra = self._copy(source, f"{name}-{repeat}", variant.log)
            receipts.append(extra.forget(self.malicious, variant.method))
            self._discard(extra)
        fed = self._copy(source, name, variant.log)
        log = measures.log_size(fed)
        receipts.append(fed.forget(self.malicious, variant.method))
        outcome = self._outcome(fed, log, receipts, curve)
        fed.close()
        if not keep:
            self._discard(fed)
        return outcome

    def _outcome(self, fed: Federation, log: LogSize, receipts: Sequence[Receipt], curve: bool) -> Outcome:
        accuracy = measures.accuracy_after(fed, fed.rounds, self.train, self.test)
        points = [*measures.accuracy_curve(fed, self.train, self.test), (fed.rounds, accuracy)] if curve else ()
        if not receipts:
            return Outcome(0.0, None, accuracy, log, curve=points)
        return Outcome(median(receipt.seconds for receipt in receipts), None, accuracy, log, receipts[-1], points)

    def popular(self) -> Accuracy:
        """The accuracy of recommending the most popular items."""
        return measures.accuracy_of(popular(self.train), self.train, self.test, self.before.devices.workers)

    def close(self) -> None:
        """Close and delete the attacked federation and all finished copies."""
        for fed in {self.slim, self.before, *self._finished}:
            _delete(fed)
        self._finished.clear()

    def _discard(self, fed: Federation) -> None:
        """Delete a copy at once if its log is large, else in ``close``."""
        if fed.config.log.whole_updates:
            _delete(fed)
        else:
            self._finished.append(fed)

    def _copy(self, source: Federation, name: str, log: Log) -> Federation:
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)  # may be left from an interrupted run
        return source.copy(path, log=log)


def _delete(fed: Federation) -> None:
    assert fed.path is not None
    fed.close()
    shutil.rmtree(fed.path, ignore_errors=True)


def bench_unlearn(
    data: Interactions,
    models: Sequence[str],
    settings: RecoverySettings,
    *,
    variants: Sequence[str] = tuple(VARIANTS),
    repeats: int = 1,
    work: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train each model under attack, run every variant, and collect time, accuracy and log size.

    Logs are kept in a temporary folder inside ``work``: about 20 GB for NCF with whole updates on MovieLens-100k.
    """
    chosen = select_variants(variants)
    if work is not None and not work.is_dir():
        raise ConfigError(f"The work folder {work} does not exist.", "Create it, or omit it for a temporary folder.")
    train, test = data.split(test=0.2, seed=settings.seed)
    names = ("preset", "rounds", "malicious", "gamma", "seed")
    shown = {name: getattr(settings, name) for name in names} | {"repeats": repeats}
    result: dict[str, Any] = {"models": {}, "settings": shown, "machine": machine.describe()}
    for name in models:
        with TemporaryDirectory(prefix="fedforget-bench-", dir=work) as folder:
            recovery = Recovery(train, test, MODELS.build(name), folder, settings, variants=chosen)
            say(f"{name}: warm-up, then {settings.rounds} rounds with {len(recovery.malicious)} malicious users")
            recovery.warm_up()
            recovery.fit()
            outcomes = recovery.compare(repeats=repeats, say=lambda label: say(f"{name}: {label}"))  # noqa: B023
            recovery.close()
        result["models"][name] = {"methods": {key: outcome.to_dict() for key, outcome in outcomes.items()}}
    return result
