"""The round loop: draw a cohort, let it train, combine what comes back, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedforget.errors import ConfigError, one_of
from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.aggregate import RULES, aggregate, screen
from fedforget.server.clients import Answers, Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.roster import Roster


@dataclass(frozen=True)
class Protocol:
    """How the server runs its rounds: the share of clients in each, how updates are combined, what is kept."""

    fraction: float = 0.1
    aggregation: str = "mean"
    snapshot_every: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(
                f"fraction is {self.fraction}.", "Give the share of clients in a round: above 0, at most 1."
            )
        if self.aggregation not in RULES:
            raise one_of("aggregation", self.aggregation, RULES)
        if self.snapshot_every < 1:
            raise ConfigError(f"snapshot_every is {self.snapshot_every}.", "Give 1 to keep every snapshot, or more.")


def accepted(answers: Answers, public: Public, cohort: Sequence[UserId]) -> Answers:
    """The answers of a cohort without the updates that fail the checks; those become named failures."""
    asked = set(cohort)
    refused = screen(answers.updates, public)
    keep = np.array([user in asked and user not in refused for user in answers.updates.users], bool)
    updates = answers.updates.only(keep)
    failures = {**answers.failures, **refused}
    return replace(
        answers,
        updates=updates,
        failures={user: failures[user] for user in cohort if user in failures and user not in updates.users},
    )


def run_round(
    round_: int, public: Public, clients: Clients, roster: Roster, protocol: Protocol, epochs: int, seed: int
) -> tuple[Public, RoundRecord]:
    """One round: the public parameters after it, and what happened. Only the devices change, each its own state."""
    started = time.perf_counter()
    cohort = roster.cohort(round_, protocol.fraction, seed)
    answers = accepted(clients.train(round_, public, cohort, epochs), public, cohort)
    updates = answers.updates
    if len(updates):
        public = aggregate(updates, public, protocol.aggregation).apply(public)
    reported = updates.losses[np.isfinite(updates.losses)]
    loss = float(np.mean(reported)) if reported.size else None
    seconds = time.perf_counter() - started
    return public, RoundRecord(round_, list(updates.users), loss, seconds, answers.failures)


def run_rounds(
    until: int,
    public: Public,
    history: History,
    clients: Clients,
    roster: Roster,
    protocol: Protocol,
    *,
    epochs: int,
    seed: int,
    on_round: Callable[[RoundRecord, Public], None],
) -> Public:
    """Run rounds after the last one in the history until ``until`` are done, committing each."""
    for round_ in range(history.last_round + 1, until + 1):
        public, record = run_round(round_, public, clients, roster, protocol, epochs, seed)
        history.commit(record, public)
        on_round(record, public)
    return public
