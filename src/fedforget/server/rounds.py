"""The round loop: draw a cohort, let it train, combine what comes back, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedforget.errors import ConfigError, one_of
from fedforget.models import Public, Recommender
from fedforget.randomness import UserId
from fedforget.server.aggregate import RULES, Step, aggregate, screen
from fedforget.server.clients import Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.optimiser import SGD, Optimiser, build_optimiser
from fedforget.server.roster import Roster
from fedforget.server.state import ServerState
from fedforget.updates import Answers


@dataclass(frozen=True)
class Protocol:
    """How the server runs its rounds: the fraction of clients in each, how their updates are combined and applied."""

    fraction: float = 0.1
    aggregation: str = "mean"
    snapshot_every: int = 1
    optimiser: Optimiser = field(default_factory=SGD)

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(
                f"fraction is {self.fraction}.", "Give the share of clients in a round: above 0, at most 1."
            )
        if self.aggregation not in RULES:
            raise one_of("aggregation", self.aggregation, RULES)
        if self.snapshot_every < 1:
            raise ConfigError(f"snapshot_every is {self.snapshot_every}.", "Give 1 to keep every snapshot, or more.")

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for TOML."""
        return {**asdict(self), "optimiser": self.optimiser.settings()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Protocol:
        """From plain values; runs made before there were optimisers have none and average."""
        optimiser = build_optimiser(**values["optimiser"]) if "optimiser" in values else SGD()
        return cls(**{**values, "optimiser": optimiser})


@dataclass(frozen=True)
class Aggregator:
    """From the answers of a cohort to the next state: checks, combines and applies updates.

    ``users`` is the number of members, which some models need to weigh regularisation.
    """

    protocol: Protocol
    model: Recommender
    users: int

    def combined(self, answers: Answers, public: Public, cohort: Sequence[UserId]) -> tuple[Step | None, Answers]:
        """The combined update (None without any), and the answers that it is made of.

        Single numbers are only looked at if the result shows that one of them is NaN or infinite.
        """
        sound = self.accepted(answers, public, cohort, numbers=False)
        step = self._combine(sound, public)
        if step is not None and not step.finite:
            sound = self.accepted(answers, public, cohort)
            step = self._combine(sound, public)
        return step, sound

    def accepted(self, answers: Answers, public: Public, cohort: Sequence[UserId], *, numbers: bool = True) -> Answers:
        """The answers of a cohort without the updates that fail the checks; those become named failures."""
        asked = set(cohort)
        refused = screen(answers.updates, public, self.model.update_layout.size, numbers=numbers)
        keep = np.array([user in asked and user not in refused for user in answers.updates.users], bool)
        updates = answers.updates.only(keep)
        failures = {**answers.failures, **refused}
        return replace(
            answers,
            updates=updates,
            failures={user: failures[user] for user in cohort if user in failures and user not in updates.users},
        )

    def apply(self, state: ServerState, step: Step | None, round_: int) -> ServerState:
        """The state after the combined update of a round; the same without one."""
        if step is None:
            return state
        items, dense = self.model.direction(state.public, step.items, step.dense, self.users)
        return self.protocol.optimiser.apply(state, Step(items, dense), round_)

    def _combine(self, answers: Answers, public: Public) -> Step | None:
        return aggregate(answers.updates, public, self.protocol.aggregation) if len(answers.updates) else None


def run_round(
    round_: int, state: ServerState, clients: Clients, cohort: Sequence[UserId], aggregator: Aggregator, epochs: int
) -> tuple[ServerState, RoundRecord]:
    """One round: the server's state after it, and what happened. Only the devices change, each its own state."""
    started = time.perf_counter()
    answers = clients.train(round_, state.public, cohort, epochs)
    step, answers = aggregator.combined(answers, state.public, cohort)
    state = aggregator.apply(state, step, round_)
    return state, record_of(round_, answers, time.perf_counter() - started)


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
    state: ServerState,
    history: History,
    clients: Clients,
    roster: Roster,
    aggregator: Aggregator,
    *,
    epochs: int,
    seed: int,
    on_round: Callable[[RoundRecord, ServerState], None],
    cohorts: Mapping[int, Sequence[UserId]] | None = None,
) -> ServerState:
    """Run rounds after the last one in the history until ``until`` are done, committing each.

    A round's cohort is drawn from the roster unless ``cohorts`` names it.
    """
    for round_ in range(history.last_round + 1, until + 1):
        named = None if cohorts is None else cohorts.get(round_)
        cohort = roster.cohort(round_, aggregator.protocol.fraction, seed) if named is None else named
        state, record = run_round(round_, state, clients, cohort, aggregator, epochs)
        history.commit([record], state)
        on_round(record, state)
    return state
