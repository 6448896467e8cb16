"""Replay: carry out a method step by step, into a new history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedforget.errors import ConfigError, QuorumError
from fedforget.models import GlobalParameters
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.updates import CohortResult
from fedforget.server.clients import Clients
from fedforget.server.history import History, OnRound, RoundRecord
from fedforget.server.rounds import Aggregator, record_of
from fedforget.server.unlearning.method import Method, Past, PastStep, Step


@dataclass
class Tally:
    """Counts of an erasure.

    ``asked`` and ``answered`` count updates: one for each past round of a device. ``messages`` has one for all rounds
    of a device in a step. ``missing`` counts missing updates by reason.
    """

    communication_rounds: int = 0
    messages: int = 0
    asked: int = 0
    answered: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, records: Sequence[RoundRecord], public: GlobalParameters) -> None:
        """Count one communication round, from its records in the new history."""
        devices = {user for record in records for user in (*record.participants, *record.failures)}
        self.communication_rounds += bool(devices)
        self.messages += len(devices)
        self.bytes_down += len(devices) * (public.items.nbytes + public.dense.nbytes)
        for record in records:
            self.asked += len(record.participants) + len(record.failures)
            self.answered += len(record.participants)
            self.bytes_up += record.sent
            self.missing.update(record.failures.values())


@dataclass(frozen=True)
class Quorum:
    """Minimum fraction of updates that must arrive in a replay; otherwise the erasure is aborted (default 0)."""

    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"require is {self.share}.", "Give the fraction of updates that must arrive: 0 to 1.")

    def check(self, tally: Tally, expected: int) -> None:
        """Raise ``QuorumError`` as soon as the fraction cannot be reached."""
        missing = tally.asked - tally.answered
        if missing > (1 - self.share) * max(expected, tally.asked) + 1e-9:
            raise QuorumError(
                f"{missing:,} of {max(expected, tally.asked):,} updates are missing; {self.share:.0%} must arrive.",
                "The old model stays in service. Try again when more devices are online, or require less.",
            )


def replay(
    method: Method,
    past: Past,
    new: History,
    clients: Clients,
    aggregator: Aggregator,
    config: DeviceConfig,
    quorum: Quorum,
    on_round: OnRound,
) -> Tally:
    """Replay past rounds without the forgotten users, and commit each step to ``new``.

    Steps that ``new`` has already, from an interrupted attempt, are only counted.
    """
    state = new.state(new.last_round)
    steps = method.schedule(past)
    expected = sum(len(users) for step in steps for users in step.asked.values())
    tally = Tally()
    for number, step in enumerate(steps, start=1):
        if step.last <= new.last_round:
            tally.add([new.record(round_) for round_ in range(step.first, step.last + 1)], state.public)
            continue
        started = time.perf_counter()
        results: Mapping[int, CohortResult] = {}
        state = new.grown(state, past.last if method.trains_anew(past.last) else step.last, config)
        if step.asked:
            epochs = config.training.epochs
            state, results = method.step(PastStep(step, past, number, state, epochs, clients, aggregator))
        records = _records(step, results, time.perf_counter() - started)
        tally.add(records, state.public)
        quorum.check(tally, expected)
        new.commit(records, state)
        for record in records:
            on_round(record)
    return tally


def _records(step: Step, results: Mapping[int, CohortResult], seconds: float) -> list[RoundRecord]:
    """The records of a step's rounds, each with its share of the time."""
    asked = max(sum(len(users) for users in step.asked.values()), 1)
    return [
        record_of(round_, results[round_], seconds * len(step.asked[round_]) / asked)
        if round_ in results
        else RoundRecord(round_, [], None, 0.0)
        for round_ in range(step.first, step.last + 1)
    ]
