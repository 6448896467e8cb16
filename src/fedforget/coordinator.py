"""Coordinator: the server's half of a federation, whichever way its devices are reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from fedforget.errors import RunError
from fedforget.forgetting import Erasure
from fedforget.models import Public, Recommender
from fedforget.randomness import UserId
from fedforget.request import Request
from fedforget.run import Run
from fedforget.server.clients import Clients
from fedforget.server.history import History, RoundRecord
from fedforget.server.roster import Roster
from fedforget.server.rounds import Aggregator, run_rounds
from fedforget.server.state import ServerState
from fedforget.server.unlearning import Method
from fedforget.server.unlearning.estimate import Estimate
from fedforget.server.unlearning.receipt import Receipt
from fedforget.settings import Settings
from fedforget.trajectory import Trajectory

OnRound = Callable[[RoundRecord], None]


class Coordinator(ABC):
    """Trains and forgets, round by round, and keeps the run; a subclass knows the devices.

    ``state`` is the server's state after ``rounds`` rounds, ``public`` the public parameters in it.
    """

    state: ServerState
    rounds: int

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tidy = False
        self._drawn_from: tuple[list[UserId], Roster] | None = None

    @property
    @abstractmethod
    def members(self) -> list[UserId]:
        """Who is in the federation, in the order in which every cohort is combined."""

    @property
    @abstractmethod
    def n_items(self) -> int:
        """How many items can be recommended."""

    @abstractmethod
    def clients(self) -> Clients:
        """The devices on the trajectory in service."""

    @abstractmethod
    def branch(self, new: Trajectory, leavers: Sequence[UserId], start: int, done: int) -> Clients:
        """The devices of those who stay on a new trajectory, which branches off after ``start`` and is at ``done``."""

    @abstractmethod
    def settings_without(self, leavers: Sequence[UserId]) -> Settings:
        """The settings once these users have left."""

    def receipt(self, receipt: Receipt) -> Receipt:
        """The receipt of an erasure, with what else is known of it here."""
        return receipt

    @abstractmethod
    def _let_go(self, leavers: Sequence[UserId]) -> None:
        """These users are forgotten: take up the new trajectory without them."""

    @abstractmethod
    def _roll_back(self, round_: int) -> None:
        """Return the devices to the state after a round."""

    @property
    def public(self) -> Public:
        """The public parameters as they are now."""
        return self.state.public

    @property
    def settings(self) -> Settings:
        """Everything that decides the result."""
        return self._run.settings

    @property
    def model(self) -> Recommender:
        """The recommender being trained."""
        return self.settings.model

    @property
    def history(self) -> History:
        """What the server remembers: rounds, who took part, receipts."""
        return self._run.current.history

    def aggregator(self, users: int) -> Aggregator:
        """How this federation combines and applies updates when it has so many users."""
        return Aggregator(self.settings.protocol, self.model, users)

    def cohort(self, round_: int) -> list[UserId]:
        """The users who took part in a round."""
        return list(self.history.record(round_).participants)

    def forget(
        self,
        users: Sequence[UserId],
        method: Method | None = None,
        *,
        require: float | None = None,
        on_round: OnRound | None = None,
    ) -> Receipt:
        """Forget these users: rebuild the federation as if they had never taken part, and erase what is left of them.

        The model stays in service until the new one is complete; a run in a folder that is killed in between goes on
        when the same request is made again. Devices that do not answer are left out, unless more than ``require``
        allows are missing: then everything stays as it was. Without a ``method`` it is what suits the model (see
        ``default_method``).
        """
        return self._forget(users, method, require, on_round)

    def estimate(self, users: Sequence[UserId], method: Method | None = None) -> Estimate:
        """What forgetting these users would take, without doing any of it."""
        return Erasure(self, self._run, users, method).estimate()

    @property
    def waiting(self) -> Request | None:
        """The erasure that was interrupted and is not finished, if any."""
        return self._run.waiting()

    def abandon_forgetting(self) -> None:
        """Give up an erasure that was interrupted; the model in service stays as it is."""
        with self._run.locked():
            self._run.abandon()

    def receipts(self) -> list[Receipt]:
        """The receipts of every erasure so far."""
        return [Receipt.from_json(text) for text in self.history.receipts()]

    def close(self) -> None:
        """Let go of the run's files."""
        self._run.close()

    def _forget(
        self,
        users: Sequence[UserId],
        method: Method | None,
        require: float | None,
        on_round: OnRound | None,
        asked: Request | None = None,
    ) -> Receipt:
        """Carry out an erasure, under the request that was ``asked`` for if there is one."""
        with self._run.locked():
            self._make_sound()
            trajectory = self.settings.trajectory
            erasure = Erasure(self, self._run, users, method)
            try:
                return erasure.carry_out(require, on_round or (lambda record: None), asked)
            finally:
                if self.settings.trajectory != trajectory:  # it is committed, whatever came after that
                    self._let_go(erasure.users)

    def _train(
        self,
        rounds: int | None,
        more: int | None,
        on_round: OnRound,
        cohorts: Mapping[int, Sequence[UserId]] | None = None,
    ) -> None:
        """Train until ``rounds`` rounds are done in all, or for ``more`` rounds."""

        def after_round(record: RoundRecord, state: ServerState) -> None:
            self.state, self.rounds = state, record.round
            self._run.current.note(record)
            on_round(record)

        with self._run.locked():
            self._refuse_while_forgetting()
            self._make_sound()
            run_rounds(
                self.rounds + more if more is not None else rounds or 0,
                self.state,
                self.history,
                self.clients(),
                self._roster(),
                self.aggregator(len(self.members)),
                epochs=self.settings.training.epochs,
                seed=self.settings.seed,
                on_round=after_round,
                cohorts=cohorts,
            )

    def _roster(self) -> Roster:
        """Who may take part: made again only when the members have changed, since it hashes every user's id."""
        members = self.members
        if self._drawn_from is None or self._drawn_from[0] is not members:
            self._drawn_from = members, Roster(members, self.settings.joins)
        return self._drawn_from[1]

    def _take_up(self) -> None:
        """Find the round to go on from and load its public parameters, writing nothing."""
        self.rounds = self._run.current.last_sound_round()
        begun = self.history.last_round >= 0
        self.state = (
            self.history.state(self.rounds)
            if begun
            else ServerState(self.model.init_public(self.n_items, self.settings.seed))
        )

    def _make_sound(self) -> None:
        """Before writing: load anew if the files have moved on, and drop from them what no round accounts for."""
        current = self._run.current
        if not current.stands_at(self.rounds):
            self._take_up()
            self._roll_back(self.rounds)
            self._tidy = False
        if not self._tidy:
            current.tidy_up(self.rounds, self.state)
            self.history.enrol(self.members)
            self._tidy = True

    def _refuse_while_forgetting(self) -> None:
        if (request := self._run.waiting()) is not None:
            raise RunError(
                f"A request to forget {len(request.users)} users ({request.id}) was interrupted and is not finished.",
                "Finish it first: forget the same users again, or `fedforget forget RUN --resume` (or `--abandon`).",
            )
