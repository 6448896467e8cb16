"""The round loop: draw a cohort, train, combine the updates, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedforget.errors import RunError
from fedforget.models import GlobalParameters, Recommender
from fedforget.protocol import reasons
from fedforget.protocol.bounds import Bounds
from fedforget.protocol.tasks import Train
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId
from fedforget.server.aggregation import Step, screen
from fedforget.server.clients import Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.roster import Roster
from fedforget.server.run_config import RunConfig
from fedforget.server.server_config import ServerConfig
from fedforget.server.state import ServerState


@dataclass(frozen=True)
class Aggregator:
    """Checks, combines and applies the updates of a cohort.

    Some models need the number of users in the ``roster``, to scale regularisation. Updates beyond ``bounds`` are
    rejected.
    """

    server: ServerConfig
    model: Recommender
    roster: Roster
    bounds: Bounds | None = None

    def combine(
        self, result: CohortResult, public: GlobalParameters, cohort: Sequence[UserId]
    ) -> tuple[Step | None, CohortResult]:
        """The combined update (None without any), and the accepted part of the result.

        Updates are only searched for NaN and infinity if the combined update holds any.
        """
        accepted = self.accept(result, public, cohort, numbers=False)
        step = self._step(accepted, public)
        if step is not None and not step.finite:
            accepted = self.accept(result, public, cohort)
            step = self._step(accepted, public)
        return step, accepted

    def accept(
        self, result: CohortResult, public: GlobalParameters, cohort: Sequence[UserId], *, numbers: bool = True
    ) -> CohortResult:
        """The result of a cohort without the updates that fail the checks, which become failures."""
        if result.total is not None:  # devices that are not in the sum have a reason already
            return replace(result, failures=_of_all(cohort, result.total.users, result.failures))
        asked = set(cohort)
        counts = self.server.aggregation.needs_counts
        rejected = screen(
            result.updates,
            public,
            self.model.update_layout.size,
            numbers=numbers,
            counts=counts,
            bounds=self.bounds,
        )
        keep = np.array([user in asked and user not in rejected for user in result.updates.users], bool)
        updates = result.updates.only(keep)
        failures = _of_all(cohort, updates.users, {**result.failures, **rejected})
        return replace(result, updates=updates, failures=failures)

    def apply(self, state: ServerState, step: Step | None, round_: int, users: int | None = None) -> ServerState:
        """The state after the combined update of a round; unchanged without one.

        ``users`` is the number of users, by default of those known in the round.
        """
        if step is None:
            return state
        users = self.roster.count(round_) if users is None else users
        items, dense = self.model.direction(state.public, step.items, step.dense, users)
        with np.errstate(over="ignore", invalid="ignore"):
            after = self.server.optimiser.apply(state, Step(items, dense), round_)
        if not Step(after.public.items, after.public.dense).finite:
            raise RunError(
                f"Round {round_} would put NaN or infinity into the model, so it is not stored.",
                "The model before it is in service. Lower the server's learning rate: --set server.optimiser.lr=…",
            )
        return after

    def _step(self, result: CohortResult, public: GlobalParameters) -> Step | None:
        rule = self.server.aggregation
        if result.total is not None:
            return rule.combine_total(result.total) if len(result.total) else None
        return rule.combine(result.updates, public) if len(result.updates) else None


def _of_all(cohort: Sequence[UserId], answered: Sequence[UserId], failures: Mapping[UserId, str]) -> dict[UserId, str]:
    """The reason of everybody in a cohort who has not answered."""
    without = set(cohort).difference(answered)
    return {user: failures.get(user, reasons.NOT_MENTIONED) for user in cohort if user in without}


def run_round(
    round_: int, state: ServerState, clients: Clients, cohort: Sequence[UserId], aggregator: Aggregator, epochs: int
) -> tuple[ServerState, RoundRecord]:
    """Run one round: the server's state after it, and its record. Only the devices change their state."""
    started = time.perf_counter()
    result = clients.run(Train(epochs), {round_: cohort}, state.public)[round_]
    step, result = aggregator.combine(result, state.public, cohort)
    state = aggregator.apply(state, step, round_)
    return state, record_of(round_, result, time.perf_counter() - started)


def record_of(round_: int, result: CohortResult, seconds: float) -> RoundRecord:
    """The record of a round, from its accepted result."""
    sent, stored = result.sent, result.stored if result.total is None else result.stored_total
    if isinstance(sent, Updates):
        reported = sent.losses[np.isfinite(sent.losses)]
        loss = float(np.mean(reported)) if reported.size else None
    else:
        loss = sent.loss
    size = sent.nbytes + (stored.nbytes if stored is not None else 0)
    return RoundRecord(round_, list(sent.users), loss, seconds, result.failures, result.seconds, size, result.epochs)


def run_rounds(
    until: int,
    state: ServerState,
    history: History,
    clients: Clients,
    roster: Roster,
    config: RunConfig,
    on_round: Callable[[RoundRecord, ServerState], None],
    cohorts: Mapping[int, Sequence[UserId]] | None = None,
) -> ServerState:
    """Run the rounds after the last one in the history up to ``until``, and commit each.

    The cohort of a round is drawn from the roster unless ``cohorts`` names it.
    """
    aggregator = Aggregator(config.server, config.model, roster, config.bounds)
    for round_ in range(history.last_round + 1, until + 1):
        state = history.grown(state, round_, config)
        named = None if cohorts is None else cohorts.get(round_)
        cohort = roster.drawn(round_, config.server, config.seed) if named is None else named
        state, record = run_round(round_, state, clients, cohort, aggregator, config.training.epochs)
        history.commit([record], state)
        on_round(record, state)
    return state
