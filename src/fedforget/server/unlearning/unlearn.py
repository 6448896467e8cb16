"""Carrying out a method: past rounds gone through again, round by round, into a new history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from fedforget.errors import ConfigError, QuorumError
from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.rounds import Aggregator, record_of
from fedforget.server.unlearning.method import Method, PastRound


@dataclass
class Tally:
    """How many devices were asked and answered, and what was moved."""

    asked: int = 0
    answered: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    missing: Counter[str] = field(default_factory=Counter)

    def add(self, record: RoundRecord, public: Public) -> None:
        """Count one round of the new history."""
        asked = len(record.participants) + len(record.failures)
        self.asked += asked
        self.answered += len(record.participants)
        self.bytes_down += asked * (public.items.nbytes + public.dense.nbytes)
        self.bytes_up += record.sent
        self.missing.update(record.failures.values())


@dataclass(frozen=True)
class Quorum:
    """How many of the devices asked in a replay must answer: less than this share, and the old model stays.

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
                f"{missing:,} of {max(expected, tally.asked):,} devices asked in the replay did not answer; "
                f"{self.share:.0%} must.",
                "The old model stays. Try again when more devices are there, or require a smaller share.",
            )


def replay(
    method: Method,
    leavers: Collection[UserId],
    past: History,
    new: History,
    clients: Clients,
    aggregator: Aggregator,
    *,
    start: int,
    first: int,
    epochs: int,
    quorum: Quorum,
    on_round: Callable[[RoundRecord], None],
) -> Tally:
    """Go through the rounds of ``past`` after ``start`` again, without the leavers, and commit each to ``new``.

    Rounds that ``new`` has already, from an attempt that was interrupted, are only counted.
    """
    state = new.state(new.last_round)
    done = min(new.last_round, past.last_round)
    stayers = {
        round_: [user for user in past.record(round_).participants if user not in leavers]
        for round_ in range(min(start, done) + 1, past.last_round + 1)
    }
    expected = sum(len(users) for users in stayers.values())
    tally = Tally()
    for round_ in range(start + 1, done + 1):
        tally.add(new.record(round_), state.public)
    for round_ in range(done + 1, past.last_round + 1):
        started = time.perf_counter()
        record = RoundRecord(round_, [], None, 0.0)
        if users := stayers[round_]:
            state, answers = method.step(PastRound(round_, first, state, users, epochs, clients, aggregator))
            record = record_of(round_, answers, time.perf_counter() - started)
        tally.add(record, state.public)
        quorum.check(tally, expected)
        new.commit(record, state)
        on_round(record)
    return tally
