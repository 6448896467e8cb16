"""Coordinator: the server of a federation, however its devices are reached."""

from __future__ import annotations

import sqlite3
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fedforget.errors import ConfigError, FedForgetError, NoAnswerError, QuorumError, RunError, RunWarning
from fedforget.models import GlobalParameters, Recommender
from fedforget.runtime.fallbacks import Fallback
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.erasure import Erasure
from fedforget.server.erasure_queue import NO_MEMBER
from fedforget.server.history import History, OnRound, RoundRecord
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest, ItemsOf, PartialErasure
from fedforget.server.roster import Roster
from fedforget.server.rounds import run_rounds
from fedforget.server.run import Run
from fedforget.server.run_config import RunConfig
from fedforget.server.state import ServerState
from fedforget.server.trajectory import Trajectory
from fedforget.server.unlearning import METHODS, Method
from fedforget.server.unlearning.estimate import Estimate

#: Called with a request before it is carried out.
OnRequest = Callable[[ErasureRequest], None]


class Coordinator(ABC):
    """Runs the rounds and erasures of a run; a subclass knows the devices.

    ``state`` is the server's state after ``rounds`` rounds, ``public`` the global parameters in it.
    """

    state: ServerState
    rounds: int

    def __init__(self, run: Run) -> None:
        self._run = run
        self._clean = False
        self._cached_roster: tuple[list[UserId], Roster] | None = None

    @property
    @abstractmethod
    def members(self) -> list[UserId]:
        """The users of the federation, in the order in which updates are combined."""

    @property
    @abstractmethod
    def n_items(self) -> int:
        """The number of items in the catalogue."""

    @abstractmethod
    def clients(self) -> Clients:
        """The devices on the trajectory in service."""

    @abstractmethod
    def _branch(self, new: Trajectory, erasure: Erasure, done: int) -> Clients:
        """The remaining users' devices on the new trajectory of an erasure, which is at round ``done``."""

    @abstractmethod
    def _digest_without(self, erasure: Erasure) -> str:
        """The digest of the data without what is forgotten."""

    @abstractmethod
    def _after_erasure(self, erasure: Erasure) -> None:
        """Continue on the new trajectory, without what is forgotten."""

    @abstractmethod
    def _roll_back_devices(self, round_: int) -> None:
        """Return the devices to their state after a round."""

    @property
    def public(self) -> GlobalParameters:
        """The current global parameters."""
        return self.state.public

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self._run.config

    @property
    def model(self) -> Recommender:
        """The recommender being trained."""
        return self.config.model

    @property
    def history(self) -> History:
        """Rounds, participants, snapshots and receipts."""
        return self._run.current.history

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
        on_request: OnRequest | None = None,
    ) -> Receipt:
        """Forget users: rebuild the model as if they had never taken part, and erase everything about them.

        The old model stays in service until the new one is complete. If the process is killed, the same call continues
        where it stopped. Devices that do not respond are skipped; if fewer than the fraction ``require`` of the updates
        arrive, the erasure is aborted and nothing changes. The default ``method`` depends on the model (see
        ``default_method``). ``on_request`` gets the request before anything happens: its id, and the salt, which is
        needed to recognise a user in the receipt and is not stored.
        """
        return self._forget(users, method, require, on_round, on_request=on_request)

    def estimate(self, users: Sequence[UserId], method: Method | None = None, items: ItemsOf | None = None) -> Estimate:
        """Estimate the cost of forgetting users, or some items of users, without doing it."""
        return self._erasure(users, method, items).estimate(self.public)

    @property
    def waiting(self) -> ErasureRequest | None:
        """The erasure that was interrupted and is not finished, if any."""
        return self._run.waiting()

    def abandon_forgetting(self) -> None:
        """Drop the erasure that was interrupted; the model in service stays."""
        with self._run.locked():
            if (request := self.waiting) is not None and self._run.queue is not None:
                self._run.queue.remove(request.id)
            self._run.abandon_erasure()

    def carry_out(
        self, request: ErasureRequest, on_round: OnRound | None = None, on_request: OnRequest | None = None
    ) -> Receipt | None:
        """Carry out a request that was queued or interrupted; None if it is refused.

        After any other error it stays in the queue.
        """
        try:
            method = METHODS.build(request.method)
            return self._forget(request.users, method, request.require, on_round, asked=request, on_request=on_request)
        except NoAnswerError as error:
            if not request.require:
                raise
            self._refuse(request, error)
        except (ConfigError, QuorumError) as error:
            self._refuse(request, error)
        return None

    def _refuse(self, request: ErasureRequest, error: FedForgetError) -> None:
        """Drop a request that cannot be carried out, and store the reason."""
        with self._run.locked():
            self._run.abandon_erasure()
            if self._run.queue is not None:
                self._run.queue.refuse(request.id, f"{error.problem} {error.hint}")

    def drop_if_done(self, request: ErasureRequest) -> bool:
        """Drop a queued request if there is nothing to do (left): it is done, or none of its users is a member."""
        done = request.id in self.history.receipts()
        if not done and (request.users or request.partial):
            return False
        with self._run.locked():  # this finishes what a kill after the commit left
            if self._run.queue is not None and done:
                self._run.queue.remove(request.id)
            elif self._run.queue is not None:
                self._run.queue.refuse(request.id, NO_MEMBER)
        return True

    def receipts(self) -> list[Receipt]:
        """The receipts of all erasures."""
        try:
            return [Receipt.from_json(text) for text in self.history.receipts().values()]
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(
                f"{self.history.path} is damaged: a receipt cannot be read: {error}.", "Restore it."
            ) from error

    def fallbacks(self) -> list[Fallback]:
        """What was damaged or missing in files of this run, and what was used instead."""
        return self._run.fallbacks()

    def close(self) -> None:
        """Close the run's files."""
        self._run.close()

    def _forget(
        self,
        users: Sequence[UserId],
        method: Method | None,
        require: float | None,
        on_round: OnRound | None,
        asked: ErasureRequest | None = None,
        items: ItemsOf | None = None,
        on_request: OnRequest | None = None,
    ) -> Receipt:
        with self._run.locked():
            self._prepare_to_write()
            before = self.config.trajectory
            erasure = self._erasure(users, method, items, () if asked is None else asked.partial)
            request = erasure.request(require, asked)
            if on_request is not None:
                on_request(request)
            new = self._run.begin_erasure(request, erasure.start)
            try:
                receipt = erasure.carry_out(
                    request,
                    new,
                    lambda done: self._branch(new, erasure, done),
                    on_round or (lambda record: None),
                )
            except BaseException as error:
                new.close()
                if isinstance(error, QuorumError):
                    self._run.abandon_erasure()
                raise
            data = {**self.config.data, "digest": self._digest_without(erasure)}
            config = replace(self.config.without(erasure.forgotten), trajectory=before + 1, data=data)
            try:
                self._run.commit_erasure(new, config, receipt)
            except (RunError, OSError, sqlite3.Error) as error:
                if self.config.trajectory == before:
                    raise
                warnings.warn(
                    f"The new model is in service, but not everything was removed yet: {error}. Open the run again to "
                    "finish.",
                    RunWarning,
                    stacklevel=4,
                )
            finally:
                if self.config.trajectory != before:  # committed, even if a later step failed
                    self._after_erasure(erasure)
            return receipt

    def _erasure(
        self,
        users: Sequence[UserId],
        method: Method | None,
        items: ItemsOf | None = None,
        partial: Sequence[PartialErasure] = (),
    ) -> Erasure:
        """The erasure of users and of interactions of others; ``items`` can be named where their data is."""
        if items:
            raise ConfigError(
                "The interactions of users on a network are on their devices only.",
                "On the user's device: fedforget device forget --state FOLDER --user ID ITEMS.",
            )
        return Erasure(self._run, self.members, users, method, partial)

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
            self._run.current.add_metrics(record)
            on_round(record)

        with self._run.locked():
            self._refuse_while_waiting()
            self._prepare_to_write()
            until = self.rounds + more if more is not None else rounds or 0
            clients, roster = self.clients(), self._roster()
            run_rounds(until, self.state, self.history, clients, roster, self.config, after_round, cohorts)

    def _refuse_while_waiting(self) -> None:
        if (request := self.waiting) is not None:
            raise RunError(
                f"A request to forget {len(request.users)} users ({request.id}) is not finished.",
                "Finish it first: forget the same users again, or `fedforget forget RUN --resume` or `--abandon`.",
            )

    def _forgotten_before(self, users: Sequence[UserId], readmit: bool, outcome: str, option: str) -> list[UserId]:
        """Those of new users who were forgotten before; refused unless they are readmitted."""
        again = self.history.membership.suppressed(users)
        if again and not readmit:
            shown = ", ".join(repr(user) for user in again[:3])
            raise ConfigError(
                f"{len(again):,} of the users were forgotten before, such as {shown}. {outcome}",
                f"Leave them out, or readmit them: {option}.",
            )
        return again

    def _roster(self) -> Roster:
        """The roster of the current members; cached, since it hashes every user id."""
        members = self.members
        if self._cached_roster is None or self._cached_roster[0] is not members:
            self._cached_roster = members, Roster(members, self.config.joins, self.history.membership.joined())
        return self._cached_roster[1]

    def _load(self) -> None:
        """Load the state after the last complete round; writes nothing."""
        self.rounds = self._run.current.last_complete_round()
        if self.history.last_round >= 0:
            self.state = self.history.state(self.rounds)
        else:
            self.state = ServerState(self.model.init_public(self.n_items, self.config.seed))

    def _prepare_to_write(self) -> None:
        """Load again if another process has written, and remove what a crash left behind."""
        current = self._run.current
        if not current.is_at(self.rounds):
            self._load()
            self._roll_back_devices(self.rounds)
            self._clean = False
        self._run.store_fallbacks()  # before what shows them is repaired
        if not self._clean:
            current.drop_after(self.rounds, self.state)
            self.history.membership.enrol(self.members)
            self._clean = True
