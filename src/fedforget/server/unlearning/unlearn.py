"""Carrying out a method: past rounds gone through again, step by step, into a new history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedforget.errors import ConfigError, QuorumError
from fedforget.models import Public
from fedforget.server.clients import Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.rounds import Aggregator, record_of
from fedforget.server.unlearning.method import Method, Past, PastStep, Step
from fedforget.updates import Answers


@dataclass
class Tally:
    """What an erasure has taken so far.

    ``asked`` and ``answered`` count updates, one for each past round of a device; a device gets one message for all of
    its rounds in a step.
    """

    communication_rounds: int = 0
    messages: int = 0
    asked: int = 0
    answered: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, records: Sequence[RoundRecord], public: Public) -> None:
        """Count one communication round, by its records in the new history."""
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
    """How many of the updates asked for in a replay must come: less than this share, and the old model stays.

    The default, 0, is the policy ``skip``: whoever does not answer is left out, and the receipt says how many.
    """

    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"require is {self.share}.", "Give the share of devices that must answer: 0 to 1.")

    def check(self, tally: Tally, expected: int) -> None:
        """Give up as soon as so many are missing that the share cannot be reached any more."""
        missing = tally.asked - tally.answered
        if missing > (1 - self.share) * max(expected, tally.asked) + 1e-9:
            raise QuorumError(
                f"{missing:,} of {max(expected, tally.asked):,} updates asked for in the replay did not come; "
                f"{self.share:.0%} must.",
                "The old model stays. Try again when more devices are there, or require a smaller share.",
            )


def replay(
    method: Method,
    past: Past,
    new: History,
    clients: Clients,
    aggregator: Aggregator,
    *,
    epochs: int,
    quorum: Quorum,
    on_round: Callable[[RoundRecord], None],
) -> Tally:
    """Go through past rounds again, without the forgotten users, and commit each step to ``new``.

    Steps that ``new`` has already, from an attempt that was interrupted, are only counted.
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
        answers: Mapping[int, Answers] = {}
        if step.asked:
            state, answers = method.step(PastStep(step, past, number, state, epochs, clients, aggregator))
        records = _records(step, answers, time.perf_counter() - started)
        tally.add(records, state.public)
        quorum.check(tally, expected)
        new.commit(records, state)
        for record in records:
            on_round(record)
    return tally


def _records(step: Step, answers: Mapping[int, Answers], seconds: float) -> list[RoundRecord]:
    """What happened in the rounds of a step, each with its share of the time."""
    asked = max(sum(len(users) for users in step.asked.values()), 1)
    return [
        record_of(round_, answers[round_], seconds * len(step.asked[round_]) / asked)
        if round_ in answers
        else RoundRecord(round_, [], None, 0.0)
        for round_ in range(step.first, step.last + 1)
    ]
