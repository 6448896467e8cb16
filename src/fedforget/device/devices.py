"""Devices: the operations of a device, for the users of one device or for all users of a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.device.calibration import calibrate, logged_lengths
from fedforget.device.cohort import Cohort, Reasons, add_up, last_of_each
from fedforget.device.compute import Compute
from fedforget.device.kernels.norms import tensor_lengths
from fedforget.device.log.codec import Logged
from fedforget.device.log.device_log import DeviceLog
from fedforget.device.log.entries import Entries
from fedforget.device.pending import Pending
from fedforget.device.plan import Plan, choose, draw_plan, redraw_plan
from fedforget.device.scoring import PlaceScorer, RowScorer, UserVectors, row_scorer, scorer, user_vectors
from fedforget.device.training import Trained
from fedforget.device.update_order import in_catalogue_order
from fedforget.models import GlobalParameters
from fedforget.models.least_squares import CONFIDENCE, REGULARISATION, fit_users
from fedforget.models.parameters import Array
from fedforget.protocol import reasons
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Asked, Recall, Replay, Task, Train
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.ragged import offsets
from fedforget.runtime.randomness import UserId
from fedforget.runtime.workers import Places, Workers


@dataclass(frozen=True)
class _LoggedRounds:
    """The logged past rounds of a cohort, why users have none, and whose items have changed since."""

    cohort: Cohort
    entries: Entries
    logged: Logged
    plan: Plan
    missing: Reasons
    changed: NDArray[np.bool_]


@dataclass(frozen=True)
class _Training:
    """The local training of a cohort, and whose training did not diverge."""

    cohort: Cohort
    plan: Plan
    trained: Trained
    sound: NDArray[np.bool_]
    epochs: int
    seconds: float


class Devices:
    """The devices of some users: their interactions, private parameters and logs, and the operations on them.

    Call ``restore`` first, to load their state after a round. Devices made by ``branch`` are on a new trajectory and
    can read the log of the ``previous`` one. ``pending`` is a replayed round that waits for the server's factors.
    ``size`` returns the number of items in a round; by default it is that of the interactions. ``draw_keys`` are the
    keys of the users' random draws; by default those of their ids, which the server knows too.
    """

    _private: Array
    _room: Array
    _logged: int

    def __init__(
        self,
        interactions: Interactions,
        config: DeviceConfig,
        log: DeviceLog,
        compute: Compute | None = None,
        previous: DeviceLog | None = None,
        size: Callable[[int], int] | None = None,
        draw_keys: NDArray[np.uint64] | None = None,
    ) -> None:
        self.interactions = interactions
        self._draw_keys = draw_keys
        self.size = size or (lambda round_: interactions.n_items)
        self.config = config
        self.model = config.model
        self.training = config.training
        self.log = log
        self.previous = previous
        self.compute = compute or Compute()
        self.workers = Workers(self.compute.workers)
        self._trainer = self.compute.build(config.model, config.training, self.workers)
        self.pending: Pending | None = None
        #: The interactions that the previous log was written with, if some were forgotten since.
        self.logged_interactions: Interactions | None = None

    @property
    def draw_keys(self) -> NDArray[np.uint64]:
        """The keys of the users' random draws."""
        return self.interactions.user_keys if self._draw_keys is None else self._draw_keys

    def branch(self, log: DeviceLog, until: int, remaining: Interactions, *, items_changed: bool = False) -> Devices:
        """Devices with the remaining interactions on a new trajectory; ``log`` is a branch of this log.

        ``items_changed``: whether remaining users have fewer items than before.
        """
        devices = Devices(remaining, self.config, log, self.compute, self.log, self.size)
        devices.logged_interactions = self.interactions if items_changed else None
        devices.restore(until)
        return devices

    def extend(self, interactions: Interactions) -> None:
        """Continue with more interactions; users and items may be new."""
        before, self.interactions = self.interactions.n_users, interactions
        if interactions.n_users == before:
            return
        if interactions.n_users > len(self._room):  # with room for more, so that not every addition copies all rows
            self._room = np.empty((interactions.n_users * 9 // 8, self._private.shape[1]), np.float32)
            self._room[:before] = self._private
        self._private = self._room[: interactions.n_users]
        self._private[before:] = self.model.init_private(self.draw_keys[before:], self.config.seed)

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None) -> dict[int, CohortResult]:
        """Carry out a task for the users who are asked for each round."""
        match task, public:
            case Train(), GlobalParameters():
                return self.train(asked, public, task)
            case Replay(), GlobalParameters():
                return self.replay(asked, public, task)
            case Recall(), _:
                return {round_: self.recall(round_, users) for round_, users in asked.items()}
        raise AssertionError(f"there is no operation for {task}")

    def scorer(self, public: GlobalParameters) -> PlaceScorer:
        """Scores all items for the user at a position."""
        return scorer(self.config, public, *self._state(public))

    def row_scorer(self, public: GlobalParameters) -> RowScorer:
        """Scores all items for the users at some positions."""
        return row_scorer(self.config, public, *self._state(public))

    def user_vectors(self, public: GlobalParameters) -> UserVectors | None:
        """The vectors of the users at some positions, if the model scores by a dot product."""
        return user_vectors(self.config, public, *self._state(public))

    def _state(self, public: GlobalParameters) -> tuple[Interactions, Array, NDArray[np.uint64]]:
        """Interactions with the items of a model, private parameters, and keys of the users' draws."""
        return self.interactions.up_to(public.items.shape[0]), self._private, self.draw_keys

    def private(self, user: UserId) -> Array:
        """One user's current private parameters."""
        private: Array = self._private[self.interactions.user_index(user)]
        return private

    def train(self, asked: Asked, public: GlobalParameters, task: Train) -> dict[int, CohortResult]:
        """Train from ``public``, log the round and keep the private parameters; returns the updates to send.

        A user whose training diverged keeps its private parameters and is reported with the reason. Asking again for a
        round starts from the same state as before.
        """
        cohort = self._refitted(public, self._cohort(asked, task.counted_in))
        training = self._train(cohort, self._plan(public, cohort), public, task.epochs)
        self._record(training)
        return self._results(asked, training, {})

    def replay(self, asked: Asked, public: GlobalParameters, task: Replay) -> dict[int, CohortResult]:
        """Replay past rounds on the new trajectory, all from ``public``.

        A user of several rounds starts each from the same private parameters; its private updates are added up.
        """
        past = self._read_log(self._cohort(asked), private=False)
        cohort = self._refitted(public, past.cohort)
        plan = past.plan
        if task.items != "logged":
            plan = self._plan(public, cohort)
        elif past.changed.any():
            plan = choose(past.plan, self._plan(public, cohort), past.changed)
        training = self._train(cohort, plan, public, task.epochs, task.private_scale)
        if task.parts != "none":
            self._record_calibrated(past, training, task.parts, public.items.shape[0])
        elif task.stored:
            assert len(asked) == 1, "only one round at a time can wait for the server's factors"
            self.pending = Pending(min(asked), cohort.keys, plan, training.trained, training.sound)
        else:
            self._record(training)
        results = self._results(asked, training, past.missing)
        if not task.stored:
            return results
        stored = self._stored(past)
        return {round_: replace(result, stored=stored) for round_, result in results.items()}

    def apply_factors(self, round_: int, factors: Factors) -> None:
        """Log the pending round, its updates scaled as the server scaled them."""
        if self.pending is not None and self.pending.round == round_:
            self.pending.apply_factors(factors, self.log, self.model.update_layout)
            self.pending = None

    def recall(self, round_: int, users: Sequence[UserId]) -> CohortResult:
        """The logged updates of a past round; the private parameters are set to the logged ones."""
        past = self._read_log(self._cohort({round_: users}), private=True)
        self.log.append(round_, past.entries, past.logged.private)
        self._private[past.cohort.places] = past.logged.private
        return CohortResult(self._stored(past), {user: reason for (_, user), reason in past.missing.items()})

    def restore(self, round_: int) -> None:
        """Load every device's state after a round from the log."""
        initial = self.model.init_private(self.draw_keys, self.config.seed)
        self._private = self._room = self.log.private(round_, self.interactions.user_keys, initial)
        self._logged = max(round_, self.log.last_round())

    def roll_back(self, round_: int) -> None:
        """Return every device, and its log, to the state after a round."""
        self.log.roll_back(round_)
        self.restore(round_)

    def set_private(self, round_: int) -> None:
        """Store the private parameters after a round as exact ones, for users whose log has only entries."""
        keys = self.interactions.user_keys
        initial = self.model.init_private(self.draw_keys, self.config.seed)
        unknown = ~np.isin(keys, self.log.store.private_state(round_).keys) & (self._private != initial).any(axis=1)
        if unknown.any():
            self.log.set_private(round_, keys[unknown], self._private[unknown])

    def _cohort(self, asked: Asked, counted_in: int = 0) -> Cohort:
        if self._logged >= min(asked):
            self.roll_back(min(asked) - 1)
        self._logged = max(asked)
        rounds = sorted(asked)
        users = [user for round_ in rounds for user in asked[round_]]
        places = np.array([self.interactions.user_index_of[user] for user in users], np.int64)
        of_each = np.repeat(np.array(rounds, np.int64), [len(asked[round_]) for round_ in rounds])
        keys, own = self.interactions.user_keys[places], self.interactions.rows(places, counted_in or of_each)
        return Cohort(users, keys, self.draw_keys[places], of_each, places, self._private[places], *own)

    def _refitted(self, public: GlobalParameters, cohort: Cohort) -> Cohort:
        """The cohort with user vectors fitted to the item table, if devices train so (``LocalTraining.refit``)."""
        if not self.training.refit:
            return cohort
        items = np.ascontiguousarray(public.items)
        gram = items.T @ items
        places, last, user_of_row = last_of_each(cohort.places)
        latest = cohort.only(last)
        ptr, own = latest.own_ptr, latest.own_items
        users = np.empty((places.size, self.model.dim), np.float32)

        def run(order: Places, counter: Places) -> None:
            fit_users(order, counter, ptr, own, items, gram, CONFIDENCE, REGULARISATION, users)

        self.workers.run(run, costs=np.diff(ptr) + self.model.dim)
        private = cohort.private.copy()
        private[:, : self.model.dim] = self.model.embeddings_for(users, items, ptr, own)[user_of_row]
        return replace(cohort, private=private)

    def _train(
        self, cohort: Cohort, plan: Plan, public: GlobalParameters, epochs: int, private_scale: float = 1.0
    ) -> _Training:
        """Train the clients of a plan; private updates are scaled and added up over each user's rounds."""
        started = time.perf_counter()
        trained = self._trainer(plan, public, cohort.private, epochs)
        seconds = time.perf_counter() - started
        self.config.bounds.shorten(trained.rows, trained.dense)
        if private_scale != 1:
            trained.private[:] = cohort.private + np.float32(private_scale) * (trained.private - cohort.private)
        sound = np.asarray(np.isfinite(trained.private).all(axis=1))
        if not self.training.refit:
            add_up(trained, cohort, sound)
        return _Training(cohort, plan, trained, sound, epochs, seconds)

    def _record(self, training: _Training, lengths: Array | None = None, dense_lengths: Array | None = None) -> None:
        cohort, plan, trained = training.cohort, training.plan, training.trained
        self.log.record(cohort.rounds, cohort.keys, plan, trained, lengths, dense_lengths, training.sound)

    def _record_calibrated(self, past: _LoggedRounds, training: _Training, parts: str, n_items: int) -> None:
        """Give new updates their logged lengths, in place, and log them."""
        plan, trained = training.plan, training.trained
        lengths = logged_lengths(plan, past.logged, past.plan, n_items)
        dense_lengths = past.logged.dense_lengths.copy() if parts == "all" else None
        calibrate(plan, trained, lengths, dense_lengths, self.model.update_layout, self.workers)
        if dense_lengths is None:
            dense_lengths = tensor_lengths(trained.dense, self.model.update_layout)
        if plan is past.plan and training.sound.all() and past.logged.has(lengths, dense_lengths):
            self.log.renew(training.cohort.rounds, past.entries, trained.private)
        else:
            self._record(training, lengths, dense_lengths)

    def _results(self, asked: Asked, training: _Training, missing: Reasons) -> dict[int, CohortResult]:
        """Keep the private parameters; returns the updates to send, by round."""
        cohort, plan, trained, sound = training.cohort, training.plan, training.trained, training.sound
        self._private[cohort.places[sound]] = trained.private[sound]
        items, rows = self._in_order(plan.item_ptr, plan.items, trained.rows)
        updates = Updates(cohort.users, plan.item_ptr, items, rows, trained.dense, self._counts(plan), trained.losses)
        failed = {**missing, **cohort.named(dict.fromkeys(np.flatnonzero(~sound).tolist(), reasons.DIVERGED))}
        seconds_each = training.seconds / max(len(cohort.users), 1)
        results = {}
        for round_ in sorted(asked):
            start, stop = np.searchsorted(cohort.rounds, [round_, round_ + 1]).tolist()
            of_round = updates.between(start, stop).only(sound[start:stop])
            failures = {user: reason for (number, user), reason in failed.items() if number == round_}
            results[round_] = CohortResult(of_round, failures, None, seconds_each * len(of_round), training.epochs)
        return results

    def _read_log(self, cohort: Cohort, *, private: bool) -> _LoggedRounds:
        """Read past rounds from the previous trajectory's log; users without a valid entry are left out."""
        assert self.previous is not None, "only devices on a new trajectory can replay"
        entries, logged, absent = self.previous.read(cohort.rounds, cohort.keys, private=private)
        missing = cohort.named(absent)
        if missing:
            cohort = cohort.only(~np.isin(np.arange(len(cohort.users)), list(absent)))
        own_ptr, own_items, changed = self._logged_items(cohort)
        same = logged.positives == np.diff(own_ptr)
        plan, whole = redraw_plan(
            self.config.sampler,
            **self._drawing(),
            n_items=np.array([self.size(round_) for round_ in cohort.rounds.tolist()], np.int64),
            own_ptr=own_ptr,
            own_items=own_items,
            user_keys=cohort.draw_keys,
            rounds=cohort.rounds,
            bit_ptr=logged.bit_ptr,
            draw_bits=logged.draw_bits,
        )
        sound = same & whole & (np.diff(plan.item_ptr) == np.diff(logged.row_ptr))
        if sound.all():
            return _LoggedRounds(cohort, entries, logged, plan, missing, changed)
        why = np.where(same, reasons.ENTRY_DAMAGED, reasons.DATA_CHANGED).tolist()
        found = cohort.named({place: why[place] for place in np.flatnonzero(~sound).tolist()})
        rest = self._read_log(cohort.only(sound), private=private)
        return replace(rest, missing={**missing, **found, **rest.missing})

    def _logged_items(self, cohort: Cohort) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """The items of a cohort when its entries were logged, and which clients have fewer now."""
        old = self.logged_interactions
        if old is None:
            return cohort.own_ptr, cohort.own_items, np.zeros(len(cohort.users), bool)
        places = np.array([old.user_index_of[user] for user in cohort.users], np.int64)
        ptr, items = old.rows(places, cohort.rounds)
        return ptr, items, np.diff(ptr) != np.diff(cohort.own_ptr)

    def _stored(self, past: _LoggedRounds) -> Updates:
        """The logged updates of a cohort."""
        logged, plan = past.logged, past.plan
        assert logged.rows is not None
        assert logged.dense is not None
        ptr = offsets(logged.kept)[logged.row_ptr]
        items, rows = self._in_order(ptr, plan.items[logged.kept], logged.rows[logged.kept])
        losses = np.full(len(past.cohort.users), np.nan, np.float32)
        return Updates(past.cohort.users, ptr, items, rows, logged.dense, self._counts(plan), losses)

    def _in_order(
        self, ptr: NDArray[np.int64], items: NDArray[np.int32], rows: Array
    ) -> tuple[NDArray[np.int32], Array]:
        """The rows of an update in the order of the catalogue. A plan without negatives has that order."""
        if not self.model.negatives:
            return items, rows
        return in_catalogue_order(ptr, items, rows, self.interactions.n_items, self.workers)

    def _counts(self, plan: Plan) -> NDArray[np.int64]:
        """The numbers of interactions that devices report: zeros unless the aggregation rule needs them."""
        return plan.positives if self.training.send_counts else np.zeros_like(plan.positives)

    def _plan(self, public: GlobalParameters, cohort: Cohort) -> Plan:
        return draw_plan(
            self.config.sampler,
            **self._drawing(),
            items=public.items,
            users=cohort.private,
            own_ptr=cohort.own_ptr,
            own_items=cohort.own_items,
            user_keys=cohort.draw_keys,
            rounds=cohort.rounds,
        )

    def _drawing(self) -> dict[str, Any]:
        """The arguments that all plans of these devices share."""
        return {
            "negatives": self.model.negatives,
            "pairwise": self.model.loss == "bpr",
            "seed": self.config.seed,
            "workers": self.workers,
        }
