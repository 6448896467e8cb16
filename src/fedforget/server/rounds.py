"""The round loop: draw a cohort, let it train, combine what comes back, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedforget.errors import ConfigError, one_of
from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.aggregate import RULES, Step, aggregate, screen
from fedforget.server.clients import Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.roster import Roster
from fedforget.updates import Answers


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


def combined(answers: Answers, public: Public, cohort: Sequence[UserId], rule: str) -> tuple[Step | None, Answers]:
    """The step of a cohort's updates (None without any), and the answers that it is made of.

    Single numbers are only looked at if the step shows that one of them is NaN or infinite.
    """
    sound = accepted(answers, public, cohort, numbers=False)
    step = aggregate(sound.updates, public, rule) if len(sound.updates) else None
    if step is not None and not step.finite:
        sound = accepted(answers, public, cohort)
        step = aggregate(sound.updates, public, rule) if len(sound.updates) else None
    return step, sound


def accepted(answers: Answers, public: Public, cohort: Sequence[UserId], *, numbers: bool = True) -> Answers:
    """The answers of a cohort without the updates that fail the checks; those become named failures."""
    asked = set(cohort)
    refused = screen(answers.updates, public, numbers=numbers)
    keep = np.array([user in asked and user not in refused for user in answers.updates.users], bool)
    updates = answers.updates.only(keep)
    failures = {**answers.failures, **refused}
    return replace(
        answers,
        updates=updates,
        failures={user: failures[user] for user in cohort if user in failures and user not in updates.users},
    )


def run_round(
    round_: int, public: Public, clients: Clients, cohort: Sequence[UserId], protocol: Protocol, epochs: int
) -> tuple[Public, RoundRecord]:
    """One round: the public parameters after it, and what happened. Only the devices change, each its own state."""
    started = time.perf_counter()
    step, answers = combined(clients.train(round_, public, cohort, epochs), public, cohort, protocol.aggregation)
    if step is not None:
        public = step.apply(public)
    return public, record_of(round_, answers, time.perf_counter() - started)


def record_of(round_: int, answers: Answers, seconds: float) -> RoundRecord:
    """What happened in a round, from its accepted answers."""
    updates = answers.updates
    reported = updates.losses[np.isfinite(updates.losses)]
    loss = float(np.mean(reported)) if reported.size else None
    sent = updates.nbytes + (answers.stored.nbytes if answers.stored is not None else 0)
    return RoundRecord(
        round_, list(updates.users), loss, seconds, answers.failures, answers.seconds, sent, answers.epochs
    )


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
    cohorts: Mapping[int, Sequence[UserId]] | None = None,
) -> Public:
    """Run rounds after the last one in the history until ``until`` are done, committing each.

    A round's cohort is drawn from the roster unless ``cohorts`` names it.
    """
    for round_ in range(history.last_round + 1, until + 1):
        named = None if cohorts is None else cohorts.get(round_)
        cohort = roster.cohort(round_, protocol.fraction, seed) if named is None else named
        public, record = run_round(round_, public, clients, cohort, protocol, epochs)
        history.commit(record, public)
        on_round(record, public)
    return public
