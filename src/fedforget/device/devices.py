"""Devices: what a device can be asked to do, for the one user of a phone or for all users of a simulation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.device.calibration import calibrate, logged_lengths
from fedforget.device.compute import Compute
from fedforget.device.kernels.norms import tensor_lengths
from fedforget.device.log.codec import Logged
from fedforget.device.log.device_log import DAMAGED, DeviceLog
from fedforget.device.log.entries import Entries
from fedforget.device.pending import Pending
from fedforget.device.plan import Plan, draw_plan, redraw_plan
from fedforget.device.sampling import Sampler
from fedforget.device.scoring import PlaceScorer, scorer
from fedforget.device.training import LocalTraining, Trained
from fedforget.models import Public, Recommender
from fedforget.models.least_squares import CONFIDENCE, REGULARISATION, fit_users
from fedforget.models.parameters import Array
from fedforget.randomness import UserId
from fedforget.replay import Factors, Replay
from fedforget.updates import Answers, Updates
from fedforget.workers import Places, Workers

#: Why a device has no update to send.
DIVERGED = "training diverged on the device"
CHANGED = "its interactions are not those of its log"
REASONS = (DIVERGED, CHANGED)


@dataclass(frozen=True)
class _Cohort:
    """The users of a request: their ids, their places among all users, and the private parameters they start from."""

    users: list[UserId]
    places: NDArray[np.int64]
    private: Array

    def only(self, keep: NDArray[np.bool_]) -> _Cohort:
        users = [user for user, kept in zip(self.users, keep, strict=True) if kept]
        return _Cohort(users, self.places[keep], self.private[keep])


@dataclass(frozen=True)
class _Remembered:
    """What the devices of a cohort find in their logs about a past round."""

    cohort: _Cohort
    entries: Entries
    logged: Logged
    plan: Plan
    missing: dict[UserId, str]


class Devices:
    """The devices of some users: their interactions, private parameters and logs, and the operations on them.

    ``restore`` says from which round on they go; nothing else may be asked of them before. Devices made by ``branch``
    follow a new trajectory and still know the log of the ``previous`` one. ``pending`` is a replayed round that waits
    for the server's factors.
    """

    _private: Array
    _logged: int

    def __init__(
        self,
        interactions: Interactions,
        model: Recommender,
        sampler: Sampler,
        training: LocalTraining,
        log: DeviceLog,
        *,
        seed: int,
        compute: Compute | None = None,
        previous: DeviceLog | None = None,
    ) -> None:
        self.interactions = interactions
        self.model = model
        self.sampler = sampler
        self.training = training
        self.log = log
        self.previous = previous
        self.seed = seed
        self.compute = compute or Compute()
        self.workers = Workers(self.compute.workers)
        self._trainer = self.compute.build(model, training, self.workers)
        self._place = {user: place for place, user in enumerate(interactions.user_ids.tolist())}
        self.pending: Pending | None = None

    def branch(self, log: DeviceLog, until: int, without: Sequence[UserId]) -> Devices:
        """The devices of all but some users on a new trajectory, whose ``log`` branches off this one after a round."""
        stayers = self.interactions.without(without)
        devices = Devices(
            stayers, self.model, self.sampler, self.training, log,
            seed=self.seed, compute=self.compute, previous=self.log,
        )  # fmt: skip
        devices.restore(until)
        return devices

    def scorer(self, public: Public) -> PlaceScorer:
        """The scores of all items for the user at a place."""
        return scorer(self.model, self.training, public, self.interactions, self._private, self.seed)

    def private(self, user: UserId) -> Array:
        """One user's private parameters as they are now."""
        private: Array = self._private[self._place[user]]
        return private

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Train these users from ``public``; log and keep what is private, return what is to be sent.

        A user whose training diverged keeps what it had and is named with the reason. A round that is asked for
        again starts from where it started before.
        """
        cohort = self._refitted(public, self._cohort(round_, users))
        plan = self._plan(round_, public, cohort)
        trained, seconds = self._train(plan, public, cohort, epochs)
        sound = _sound(trained)
        self.log.record(round_, self._keys(cohort), plan, trained, sound=sound)
        return replace(self._answers(cohort, plan, trained, sound, seconds), epochs=epochs)

    def replay(self, round_: int, public: Public, users: Sequence[UserId], how: Replay) -> Answers:
        """Go through a past round again, on the new trajectory, from ``public``."""
        cohort = self._cohort(round_, users)
        past = self._remember(round_, cohort, public.items.shape[0], private=False)
        cohort = self._refitted(public, past.cohort)
        plan = past.plan if how.items == "logged" else self._plan(round_, public, cohort)
        trained, seconds = self._train(plan, public, cohort, how.epochs)
        _stretch(trained, cohort, how.stretch)
        sound = _sound(trained)
        keys = self._keys(cohort)
        if how.parts is not None:
            lengths = logged_lengths(plan, past.logged, past.plan, public.items.shape[0])
            dense_lengths = past.logged.dense_lengths.copy() if how.parts == "all" else None
            calibrate(plan, trained, lengths, dense_lengths, self.model.update_layout, self.workers)
            if dense_lengths is None:
                dense_lengths = tensor_lengths(trained.dense, self.model.update_layout)
            if plan is past.plan and sound.all() and past.logged.has(lengths, dense_lengths):
                self.log.renew(round_, past.entries, trained.private)
            else:
                self.log.record(round_, keys, plan, trained, lengths, dense_lengths, sound)
        elif how.stored:
            self.pending = Pending(round_, keys, plan, trained, sound)
        else:
            self.log.record(round_, keys, plan, trained, sound=sound)
        answers = self._answers(cohort, plan, trained, sound, seconds)
        stored = self._stored(past) if how.stored else None
        return Answers(answers.updates, {**past.missing, **answers.failures}, stored, seconds, how.epochs)

    def settle(self, round_: int, factors: Factors) -> None:
        """Log the round whose fresh updates were sent with the stored ones, scaled as the server scaled them."""
        if self.pending is not None and self.pending.round == round_:
            self.pending.settle(factors, self.log, self.model.update_layout)
            self.pending = None

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Return the updates that the log has for a round and take up the private parameters it has for it."""
        past = self._remember(round_, self._cohort(round_, users), n_items, private=True)
        self.log.append(round_, past.entries, past.logged.private)
        self._private[past.cohort.places] = past.logged.private
        return Answers(self._stored(past), past.missing)

    def restore(self, round_: int) -> None:
        """Take up every device's state after a round, as its log has it."""
        initial = self.model.init_private(self.interactions.user_keys, self.seed)
        self._private = self.log.private(round_, self.interactions.user_keys, initial)
        self._logged = max(round_, self.log.last_round())

    def roll_back(self, round_: int) -> None:
        """Return every device, and its log, to the state after a round."""
        self.log.roll_back(round_)
        self.restore(round_)

    def settle_private(self, round_: int) -> None:
        """Let the log know exactly what the private parameters are after a round, also where it came from entries."""
        keys = self.interactions.user_keys
        initial = self.model.init_private(keys, self.seed)
        unknown = ~np.isin(keys, self.log.store.exact(round_).keys) & (self._private != initial).any(axis=1)
        if unknown.any():
            self.log.settle(round_, keys[unknown], self._private[unknown])

    def _cohort(self, round_: int, users: Sequence[UserId]) -> _Cohort:
        if self._logged >= round_:
            self.roll_back(round_ - 1)
        self._logged = round_
        places = np.array([self._place[user] for user in users], np.int64)
        return _Cohort(list(users), places, self._private[places])

    def _keys(self, cohort: _Cohort) -> NDArray[np.uint64]:
        return self.interactions.user_keys[cohort.places]

    def _train(self, plan: Plan, public: Public, cohort: _Cohort, epochs: int) -> tuple[Trained, float]:
        started = time.perf_counter()
        trained = self._trainer(plan, public, cohort.private, epochs)
        return trained, time.perf_counter() - started

    def _refitted(self, public: Public, cohort: _Cohort) -> _Cohort:
        """The same users, starting from vectors that fit the item table, where that is how devices train."""
        if not self.training.refit:
            return cohort
        items = np.ascontiguousarray(public.items)
        gram = items.T @ items
        ptr, own = self.interactions.rows(cohort.places)
        users = np.empty((len(cohort.users), self.model.dim), np.float32)

        def run(order: Places, counter: Places) -> None:
            fit_users(order, counter, ptr, own, items, gram, CONFIDENCE, REGULARISATION, users)

        self.workers.run(run, costs=np.diff(ptr) + self.model.dim)
        private = cohort.private.copy()
        private[:, : self.model.dim] = self.model.embeddings_for(users, items, ptr, own)
        return replace(cohort, private=private)

    def _answers(
        self, cohort: _Cohort, plan: Plan, trained: Trained, sound: NDArray[np.bool_], seconds: float
    ) -> Answers:
        """Keep what is private; send the rest."""
        self._private[cohort.places[sound]] = trained.private[sound]
        updates = Updates(
            cohort.users, plan.item_ptr, plan.items, trained.rows, trained.dense, plan.positives, trained.losses
        )
        failures = {user: DIVERGED for user, fine in zip(cohort.users, sound, strict=True) if not fine}
        return Answers(updates.only(sound), failures, None, seconds)

    def _remember(self, round_: int, cohort: _Cohort, n_items: int, *, private: bool) -> _Remembered:
        """Read the previous trajectory's log of a round; who cannot is named with the reason."""
        assert self.previous is not None, "only devices on a new trajectory have a past to go through again"
        entries, logged, absent = self.previous.read(round_, self._keys(cohort), private=private)
        missing = {cohort.users[place]: reason for place, reason in absent.items()}
        if missing:
            cohort = cohort.only(np.array([user not in missing for user in cohort.users], bool))
        own_ptr, own_items = self.interactions.rows(cohort.places)
        same = logged.positives == np.diff(own_ptr)
        plan, whole = redraw_plan(
            self.sampler, **self._purpose(), n_items=n_items, own_ptr=own_ptr, own_items=own_items,
            user_keys=self._keys(cohort), round_=round_, walk_ptr=logged.walk_ptr, walks=logged.walks,
        )  # fmt: skip
        sound = same & whole & (np.diff(plan.item_ptr) == np.diff(logged.row_ptr))
        if sound.all():
            return _Remembered(cohort, entries, logged, plan, missing)
        reasons = np.where(same, DAMAGED, CHANGED).tolist()
        found = {cohort.users[place]: reasons[place] for place in np.flatnonzero(~sound)}
        rest = self._remember(round_, cohort.only(sound), n_items, private=private)
        return _Remembered(rest.cohort, rest.entries, rest.logged, rest.plan, {**missing, **found, **rest.missing})

    def _stored(self, past: _Remembered) -> Updates:
        """The logged updates of a cohort, as far as their devices keep them."""
        logged, plan = past.logged, past.plan
        assert logged.rows is not None
        assert logged.dense is not None
        counts = np.diff(np.concatenate([[0], np.cumsum(logged.kept)])[logged.row_ptr])
        ptr = np.concatenate([[0], np.cumsum(counts)])
        losses = np.full(len(past.cohort.users), np.nan, np.float32)
        return Updates(
            past.cohort.users, ptr, plan.items[logged.kept], logged.rows[logged.kept], logged.dense,
            plan.positives, losses,
        )  # fmt: skip

    def _plan(self, round_: int, public: Public, cohort: _Cohort) -> Plan:
        own_ptr, own_items = self.interactions.rows(cohort.places)
        return draw_plan(
            self.sampler, **self._purpose(), items=public.items, users=cohort.private, own_ptr=own_ptr,
            own_items=own_items, user_keys=self._keys(cohort), round_=round_,
        )  # fmt: skip

    def _purpose(self) -> dict[str, Any]:
        """What every plan of these devices is drawn with."""
        return {
            "negatives": self.model.negatives,
            "pairwise": self.model.loss == "bpr",
            "seed": self.seed,
            "workers": self.workers,
        }


def _stretch(trained: Trained, cohort: _Cohort, factor: float) -> None:
    """Take the private updates so many times, in place."""
    if factor != 1:
        trained.private[:] = cohort.private + np.float32(factor) * (trained.private - cohort.private)


def _sound(trained: Trained) -> NDArray[np.bool_]:
    """Which clients' training did not diverge."""
    return np.asarray(np.isfinite(trained.private).all(axis=1))
