"""Erasure: one request to forget, from the check of its users to the receipt."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fedforget.errors import ConfigError, QuorumError, RunError, RunWarning
from fedforget.pseudonym import pseudonym
from fedforget.randomness import UserId
from fedforget.request import Request, checked_users
from fedforget.run import Run
from fedforget.server.clients import Clients
from fedforget.server.history import RoundRecord
from fedforget.server.roster import Roster
from fedforget.server.rounds import Aggregator, run_rounds
from fedforget.server.unlearning import Method, default_method, why_chosen
from fedforget.server.unlearning.estimate import Estimate, estimate
from fedforget.server.unlearning.method import Past
from fedforget.server.unlearning.receipt import Receipt
from fedforget.server.unlearning.unlearn import Quorum, Tally, replay
from fedforget.trajectory import Trajectory
from fedforget.version import __version__

if TYPE_CHECKING:
    from fedforget.coordinator import Coordinator

OnRound = Callable[[RoundRecord], None]


class Erasure:
    """What it takes to forget some users of a federation, and the doing of it."""

    def __init__(self, coordinator: Coordinator, run: Run, users: Sequence[UserId], method: Method | None) -> None:
        self.coordinator = coordinator
        model = coordinator.model
        self.run = run
        protocol = coordinator.settings.protocol
        self.method = method = (method or default_method(model)).for_model(model).for_protocol(protocol)
        self.users = checked_users(users, coordinator.members)
        log = coordinator.settings.log
        if method.needs_whole_updates() and not log.whole_updates:
            raise ConfigError(
                f"{method.name} needs whole updates, but the devices of this run log lengths only.",
                "Use FRU(calibration='device'), or train with Log('float32') from the start.",
            )
        if method.shortens_training() and model.closed_form:
            raise ConfigError(
                f"{method.name} makes local training shorter, but {model.name} has no epochs: one computation a round.",
                "Use Retrain(steps=20) (--method retrain --steps 20), its default: exact, and in a few rounds.",
            )
        history = run.current.history
        self.last = max(history.last_round, 0)
        self.first = history.first_round_of(self.users)
        self.start = self._start()
        if method.needs_whole_updates() and self._limited_rounds():
            raise ConfigError(
                f"{method.name} needs updates as they were applied, but an earlier erasure replayed rounds in steps, "
                "whose length the server limited.",
                "Use FRU(calibration='device') or Retrain().",
            )

    def _limited_rounds(self) -> bool:
        """Whether a step of FRU is among the rounds to go through again: its updates may have been shortened."""
        history = self.run.current.history
        rounds = set(range(self.start + 1, self.last + 1)) - history.single_rounds()
        return any(0 < history.record(r).epochs < self.coordinator.settings.training.epochs for r in rounds)

    def _start(self) -> int:
        """The round to go back to: the last snapshot before what has to be gone through again."""
        if self.first is None:
            return self.last
        wanted = self.method.begin(self.first, self.last) - 1
        usable = [round_ for round_ in self.run.current.history.usable_rounds() if round_ <= wanted]
        if not usable:
            raise RunError(
                f"There is no snapshot of round {wanted} or before to go back to.",
                "Put its file back into the run's snapshots folder, or forget with Continue(), which never goes back.",
            )
        return usable[0]

    def estimate(self) -> Estimate:
        """What it will take."""
        settings = self.coordinator.settings
        return estimate(
            self.run.current.history, self.coordinator.public, self.method, self._past(),
            epochs=settings.training.epochs, first=self.first, start=self.start,
            waiting=settings.engine != "simulation",
            chosen=why_chosen(self.method, self.coordinator.model, settings.protocol),
        )  # fmt: skip

    def carry_out(self, require: float | None, on_round: OnRound, asked: Request | None = None) -> Receipt:
        """Build the new trajectory, put it in service, and give up the old one."""
        begun = time.perf_counter()
        before = self.coordinator.public.digest
        request = self._request(require, asked)
        quorum = Quorum(request.require)
        new = self.run.begin(request, self.start)
        try:
            clients, earlier = self._take_up(new)
            tally = self._replay(new, clients, quorum, on_round)
            added = self._train_on(new, clients, tally, on_round)
            quorum.check(tally, tally.asked)
        except BaseException as error:
            new.close()
            if isinstance(error, QuorumError):
                self.run.abandon()
            raise
        seconds = earlier + time.perf_counter() - begun
        receipt = self.coordinator.receipt(self._receipt(request, new, tally, added, seconds, before))
        self.run.commit(new, self.coordinator.settings_without(self.users), receipt)
        return receipt

    def _request(self, require: float | None, asked: Request | None) -> Request:
        """This request, or the same one that was interrupted: as many must answer as then, unless said otherwise."""
        Quorum(require or 0.0)
        waiting = self.run.waiting()
        if waiting is None:
            request = asked or Request.new(self.users, self.method.settings(), require or 0.0)
            return replace(request, method=self.method.settings(), trajectory=self.coordinator.settings.trajectory + 1)
        if waiting.asks_for(self.users, self.method.settings()):
            return waiting if require is None else replace(waiting, require=require)
        raise RunError(
            f"Another request ({waiting.id}, {len(waiting.users)} users, {waiting.method['name']}) is not finished.",
            "Finish it with `fedforget forget RUN --resume`, or give it up with `--abandon`, and ask again.",
        )

    def _take_up(self, new: Trajectory) -> tuple[Clients, float]:
        """The stayers' devices on the new trajectory, and the seconds that an earlier attempt spent on it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # a kill in the middle is what resuming is for
            done = new.last_sound_round()
        clients = self.coordinator.branch(new, self.users, self.start, done)
        new.tidy_up(done, new.history.state(done))
        earlier = sum(new.history.record(round_).seconds for round_ in range(self.start + 1, done + 1))
        return clients, earlier

    def _replay(self, new: Trajectory, clients: Clients, quorum: Quorum, on_round: OnRound) -> Tally:
        if self.first is None:
            return Tally()

        def after_round(record: RoundRecord) -> None:
            new.note(record)
            on_round(record)

        settings = self.coordinator.settings
        return replay(
            self.method, self._past(), new.history, clients, self._aggregator(),
            epochs=settings.training.epochs, quorum=quorum, on_round=after_round,
        )  # fmt: skip

    def _past(self) -> Past:
        """The rounds to go through again, without the forgotten users."""
        history, roster, settings = self.run.current.history, self._roster(), self.coordinator.settings
        gone = set(self.users)
        rounds = range(self.start + 1, self.last + 1) if self.first is not None else ()
        records = [history.record(round_) for round_ in rounds]
        single, epochs = history.single_rounds(), settings.training.epochs
        return Past(
            {record.round: [user for user in record.participants if user not in gone] for record in records},
            self.first or 0,
            {record.round for record in records if record.epochs in (0, epochs) and record.round in single},
            lambda round_, fraction: roster.cohort(round_, fraction, settings.seed),
            history.moved,
        )

    def _roster(self) -> Roster:
        """The users who stay."""
        gone = set(self.users)
        joins = self.coordinator.settings.joins
        return Roster(
            [user for user in self.coordinator.members if user not in gone],
            {user: round_ for user, round_ in joins.items() if user not in gone},
        )

    def _aggregator(self) -> Aggregator:
        return self.coordinator.aggregator(len(self.coordinator.members) - len(self.users))

    def _train_on(self, new: Trajectory, clients: Clients, tally: Tally, on_round: OnRound) -> int:
        """The ordinary rounds that the method adds at the end."""
        more = self.method.more_rounds(self.last) if self.first is not None else 0
        settings = self.coordinator.settings
        state = new.history.state(new.history.last_round)

        def after_round(record: RoundRecord, _: object) -> None:
            new.note(record)
            on_round(record)

        run_rounds(
            self.last + more, state, new.history, clients, self._roster(), self._aggregator(),
            epochs=settings.training.epochs, seed=settings.seed, on_round=after_round,
        )  # fmt: skip
        for round_ in range(self.last + 1, self.last + more + 1):
            tally.add([new.history.record(round_)], state.public)
        return more

    def _receipt(
        self, request: Request, new: Trajectory, tally: Tally, added: int, seconds: float, before: str
    ) -> Receipt:
        return Receipt(
            request=request.id,
            users=sorted(pseudonym(user, request.salt) for user in self.users),
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
            digest_before=before,
            digest_after=new.history.snapshot(new.history.last_round).digest,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
            communication_rounds=tally.communication_rounds,
            messages=tally.messages,
            chosen=why_chosen(self.method, self.coordinator.model, self.coordinator.settings.protocol),
            salt=request.salt,
        )
