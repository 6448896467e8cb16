"""Erasure: one request to forget users, from checking it to the receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fedforget.errors import ConfigError, RunError
from fedforget.models import GlobalParameters
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.fallbacks import expected
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.history import OnRound, RoundRecord
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest, PartialErasure, checked_users
from fedforget.server.roster import Roster
from fedforget.server.rounds import Aggregator, run_rounds
from fedforget.server.run import Run
from fedforget.server.trajectory import Trajectory
from fedforget.server.unlearning import Method, default_method, why_chosen
from fedforget.server.unlearning.cover import Cover
from fedforget.server.unlearning.estimate import Estimate, estimate
from fedforget.server.unlearning.method import Past
from fedforget.server.unlearning.unlearn import Quorum, Tally, replay
from fedforget.version import __version__

#: The remaining users' devices on the new trajectory, which has this many rounds already.
Branch = Callable[[int], Clients]


class Erasure:
    """The users to forget, interactions of others to forget, the method, and the rounds to replay."""

    def __init__(
        self,
        run: Run,
        members: Sequence[UserId],
        users: Sequence[UserId],
        method: Method | None = None,
        partial: Sequence[PartialErasure] = (),
    ) -> None:
        self.run = run
        self.config = config = run.config
        self.partial = list(partial)
        self.users = [] if self.partial and len(users) == 0 else checked_users(users, members)
        self.method = (method or default_method(config.model)).for_model(config.model).for_server(config.server)
        _check_method(self.method, config.log.whole_updates, config.model.closed_form)
        self.forgotten = set(self.users)
        remaining = [user for user in members if user not in self.forgotten]
        self.history = run.current.history
        added = {user: since for user, since in self.history.membership.joined().items() if user not in self.forgotten}
        self.roster = Roster(remaining, config.without(self.forgotten).joins, added)
        self.last = max(self.history.last_round, 0)
        counted = [part for part in self.partial if part.since is not None]
        firsts = [self.history.first_round_since(part.user, part.since or 0) for part in counted]
        changed = self.forgotten | {part.user for part in self.partial}
        minimum = config.server.smallest_sum
        if minimum and len(remaining) - max(minimum - len(changed), 0) < minimum:
            raise ConfigError(
                f"Only {len(remaining)} users would remain, too few to forget with secure aggregation: "
                f"{minimum} must be in each sum, and {minimum} left out of it, with those who are forgotten.",
                "Register more users, or forget when there are more.",
            )
        self.cover = Cover(self.forgotten, changed, minimum, config.seed, config.trajectory + 1)
        self.first = min((f for f in [self.history.first_round_of(self.users), *firsts] if f is not None), default=None)
        self.start = self._start()
        if self.partial and self.method.needs_whole_updates():
            raise ConfigError(
                f"{self.method.name} applies logged updates again, which contain the items to forget.",
                "Use FRU(calibration='device') or Retrain() (--method retrain).",
            )
        if self.method.needs_whole_updates() and self._limited_rounds():
            raise ConfigError(
                f"{self.method.name} needs updates as they were applied, but an earlier erasure replayed rounds in "
                "steps, whose length the server limited.",
                "Use FRU(calibration='device') or Retrain().",
            )

    def estimate(self, public: GlobalParameters) -> Estimate:
        """The expected cost."""
        return estimate(
            self.history,
            public,
            self.method,
            self._past(),
            self.config.training.epochs,
            self.first,
            self.start,
            self.config.engine != "simulation",
            why_chosen(self.method, self.config.model, self.config.server),
        )

    def request(self, require: float | None, asked: ErasureRequest | None = None) -> ErasureRequest:
        """The request to store: the one that was interrupted if it is the same, else ``asked`` or a new one."""
        Quorum(require or 0.0)
        settings = self.method.settings()
        waiting = self.run.waiting()
        if waiting is None:
            request = asked or ErasureRequest.new(self.users, settings, require or 0.0, self.partial)
            return replace(request, method=settings, trajectory=self.config.trajectory + 1, partial=tuple(self.partial))
        if waiting.asks_for(self.users, settings, self.partial):
            return waiting if require is None else replace(waiting, require=require)
        raise RunError(
            f"Another request ({waiting.id}, {len(waiting.users)} users, {waiting.method['name']}) is not finished.",
            "Finish it with `fedforget forget RUN --resume`, or drop it with `--abandon`, and ask again.",
        )

    def carry_out(self, request: ErasureRequest, new: Trajectory, branch: Branch, on_round: OnRound) -> Receipt:
        """Replay past rounds without the forgotten users into ``new``, or continue an interrupted attempt."""
        started = time.perf_counter()
        quorum = Quorum(request.require)
        with expected():  # an attempt may have been interrupted
            done = max(new.last_complete_round(), self.start)  # logs before the start are not needed
        clients = branch(done)
        new.drop_after(done, new.history.state(done))
        earlier = sum(new.history.record(round_).seconds for round_ in range(self.start + 1, done + 1))

        def after_round(record: RoundRecord) -> None:
            new.add_metrics(record)
            on_round(record)

        tally, added = Tally(), 0
        if self.first is not None:
            aggregator = Aggregator(self.config.server, self.config.model, self.roster, self.config.bounds)
            past = self._past()
            tally = replay(self.method, past, new.history, clients, aggregator, self.config, quorum, after_round)
            added = self._add_rounds(new, clients, tally, after_round)
        quorum.check(tally, tally.asked)
        return self._receipt(request, new, tally, added, earlier + time.perf_counter() - started)

    def _add_rounds(self, new: Trajectory, clients: Clients, tally: Tally, on_round: OnRound) -> int:
        """Train the ordinary rounds that the method adds at the end; returns their number."""
        added = self.method.more_rounds(self.last)
        state = new.history.state(new.history.last_round)
        until = self.last + added
        run_rounds(until, state, new.history, clients, self.roster, self.config, lambda record, _: on_round(record))
        for round_ in range(self.last + 1, until + 1):
            tally.add([new.history.record(round_)], state.public)
        return added

    def _past(self) -> Past:
        """The rounds to replay, without the forgotten users."""
        rounds = range(self.start + 1, self.last + 1) if self.first is not None else ()
        records = [self.history.record(round_) for round_ in rounds]
        single = self.history.single_rounds()
        trained = {record.round for record in records if record.epochs in (0, self.config.training.epochs)}
        return Past(
            {record.round: self.cover.remaining(record.participants) for record in records},
            self.first or 0,
            trained & single,
            self._draw,
            self.history.moved,
        )

    def _draw(self, round_: int, fraction: float) -> list[UserId]:
        """The cohort of a round of training anew."""
        config = self.config
        known_in, at_least = max(round_, self.last), config.server.smallest_cohort
        return self.cover.drawn(
            self.roster.cohort(round_, fraction, config.seed, known_in, at_least), self.roster.users
        )

    def _start(self) -> int:
        """The round to roll back to: that of the last snapshot before the rounds to replay."""
        if self.first is None:
            return self.last
        wanted = self.method.begin(self.first, self.last) - 1
        for round_ in self.history.usable_rounds():
            if round_ <= wanted:
                return round_
        raise RunError(
            f"There is no snapshot of round {wanted} or before.",
            f"Restore its file in {self.history.path.parent / 'snapshots'}, or forget with Continue(), which does not "
            "roll back.",
        )

    def _limited_rounds(self) -> bool:
        """Whether the rounds to replay include a step of FRU, whose updates may have been shortened."""
        rounds = set(range(self.start + 1, self.last + 1)) - self.history.single_rounds()
        return any(0 < self.history.record(round_).epochs < self.config.training.epochs for round_ in rounds)

    def _receipt(self, request: ErasureRequest, new: Trajectory, tally: Tally, added: int, seconds: float) -> Receipt:
        return Receipt(
            request=request.id,
            users=sorted(pseudonym(user, request.salt) for user in self.users),
            partial=dict(sorted((pseudonym(part.user, request.salt), part.count) for part in self.partial)),
            method=self.method.settings(),
            first_round=self.first,
            rounds_replayed=self.last - self.start,
            rounds_added=added,
            asked=tally.asked,
            answered=tally.answered,
            missing=dict(tally.missing),
            bytes_down=tally.bytes_down,
            bytes_up=tally.bytes_up,
            seconds=seconds,
            digest_before=self.history.snapshot(self.last).digest,
            digest_after=new.history.snapshot(new.history.last_round).digest,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
            wiped=None if self.config.engine == "simulation" else 0,
            communication_rounds=tally.communication_rounds,
            messages=tally.messages,
            chosen=why_chosen(self.method, self.config.model, self.config.server),
            salt=request.salt,
        )


def _check_method(method: Method, whole_updates: bool, closed_form: bool) -> None:
    """Raise an error if the method does not work with the devices' logs or the model."""
    if method.needs_whole_updates() and not whole_updates:
        raise ConfigError(
            f"{method.name} needs whole updates, but the devices of this run log lengths only.",
            "Use FRU(calibration='device'), or train with Log('float32') from the start.",
        )
    if method.shortens_training() and closed_form:
        raise ConfigError(
            f"{method.name} shortens local training, but this model has no epochs: its update is in closed form.",
            "Use its default, Retrain(steps=20) (--method retrain --set steps=20).",
        )
