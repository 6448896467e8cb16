"""Devices: what a device can be asked to do, for the one user of a phone or for all users of a simulation."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
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
#: Why users have no update, each for a round.
Reasons = dict[tuple[int, UserId], str]


@dataclass(frozen=True)
class _Cohort:
    """Who is asked for which round, in the order of rounds, and the private parameters that each starts from.

    A user who took part in several of the rounds is in it several times. ``places`` are those among all users.
    """

    users: list[UserId]
    rounds: NDArray[np.int64]
    places: NDArray[np.int64]
    private: Array

    def only(self, keep: NDArray[np.bool_]) -> _Cohort:
        users = [user for user, kept in zip(self.users, keep, strict=True) if kept]
        return _Cohort(users, self.rounds[keep], self.places[keep], self.private[keep])

    def named(self, reasons: Mapping[int, str]) -> Reasons:
        """For reasons by place in this cohort, whose they are and for which round."""
        return {(int(self.rounds[place]), self.users[place]): reason for place, reason in reasons.items()}


@dataclass(frozen=True)
class _Remembered:
    """What the devices of a cohort find in their logs about past rounds."""

    cohort: _Cohort
    entries: Entries
    logged: Logged
    plan: Plan
    missing: Reasons


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
        return self.replay({round_: users}, public, Replay(epochs, parts=None))[round_]

    def replay(self, asked: Mapping[int, Sequence[UserId]], public: Public, how: Replay) -> dict[int, Answers]:
        """Go through past rounds again, on the new trajectory, all from ``public``: who is asked for which round.

        A user of several rounds starts each from the same private parameters, and its private updates add up.
        """
        cohort, past, missing = self._cohort(asked), None, {}
        if how.uses_log:
            past = self._remember(cohort, public.items.shape[0], private=False)
            cohort, missing = past.cohort, past.missing
        cohort = self._refitted(public, cohort)
        plan = past.plan if past is not None and how.items == "logged" else self._plan(public, cohort)
        trained, seconds = self._train(plan, public, cohort, how.epochs)
        _stretch(trained, cohort, how.stretch)
        sound = _sound(trained)
        if not self.training.refit:
            _add_up(trained, cohort, sound)
        if past is not None and how.parts is not None:
            self._record_calibrated(past, cohort, plan, trained, sound, how, public.items.shape[0])
        elif how.stored:
            assert len(asked) == 1, "one round at a time waits for the server's factors"
            self.pending = Pending(min(asked), self._keys(cohort), plan, trained, sound)
        else:
            self.log.record(cohort.rounds, self._keys(cohort), plan, trained, sound=sound)
        answers = self._answers(asked, cohort, plan, trained, sound, missing)
        each = seconds / max(len(cohort.users), 1)
        stored = self._stored(past) if past is not None and how.stored else None
        return {
            round_: replace(answer, stored=stored, seconds=each * len(answer.updates), epochs=how.epochs)
            for round_, answer in answers.items()
        }

    def _record_calibrated(
        self, past: _Remembered, cohort: _Cohort, plan: Plan, trained: Trained, sound: NDArray[np.bool_], how: Replay,
        n_items: int,
    ) -> None:  # fmt: skip
        """Give fresh updates their logged lengths, in place, and log them."""
        lengths = logged_lengths(plan, past.logged, past.plan, n_items)
        dense_lengths = past.logged.dense_lengths.copy() if how.parts == "all" else None
        calibrate(plan, trained, lengths, dense_lengths, self.model.update_layout, self.workers)
        if dense_lengths is None:
            dense_lengths = tensor_lengths(trained.dense, self.model.update_layout)
        if plan is past.plan and sound.all() and past.logged.has(lengths, dense_lengths):
            self.log.renew(cohort.rounds, past.entries, trained.private)
        else:
            self.log.record(cohort.rounds, self._keys(cohort), plan, trained, lengths, dense_lengths, sound)

    def settle(self, round_: int, factors: Factors) -> None:
        """Log the round whose fresh updates were sent with the stored ones, scaled as the server scaled them."""
        if self.pending is not None and self.pending.round == round_:
            self.pending.settle(factors, self.log, self.model.update_layout)
            self.pending = None

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Return the updates that the log has for a round and take up the private parameters it has for it."""
        past = self._remember(self._cohort({round_: users}), n_items, private=True)
        self.log.append(round_, past.entries, past.logged.private)
        self._private[past.cohort.places] = past.logged.private
        return Answers(self._stored(past), {user: reason for (_, user), reason in past.missing.items()})

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

    def _cohort(self, asked: Mapping[int, Sequence[UserId]]) -> _Cohort:
        first, last = min(asked), max(asked)
        if self._logged >= first:
            self.roll_back(first - 1)
        self._logged = last
        rounds = sorted(asked)
        users = [user for round_ in rounds for user in asked[round_]]
        places = np.array([self._place[user] for user in users], np.int64)
        of_each = np.repeat(np.array(rounds, np.int64), [len(asked[round_]) for round_ in rounds])
        return _Cohort(users, of_each, places, self._private[places])

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
        places, whose = np.unique(cohort.places, return_inverse=True)
        ptr, own = self.interactions.rows(places)
        users = np.empty((places.size, self.model.dim), np.float32)

        def run(order: Places, counter: Places) -> None:
            fit_users(order, counter, ptr, own, items, gram, CONFIDENCE, REGULARISATION, users)

        self.workers.run(run, costs=np.diff(ptr) + self.model.dim)
        private = cohort.private.copy()
        private[:, : self.model.dim] = self.model.embeddings_for(users, items, ptr, own)[whose]
        return replace(cohort, private=private)

    def _answers(
        self, asked: Collection[int], cohort: _Cohort, plan: Plan, trained: Trained, sound: NDArray[np.bool_],
        missing: Reasons,
    ) -> dict[int, Answers]:  # fmt: skip
        """Keep what is private; send the rest, round by round."""
        self._private[cohort.places[sound]] = trained.private[sound]
        updates = Updates(
            cohort.users, plan.item_ptr, plan.items, trained.rows, trained.dense, plan.positives, trained.losses
        )
        reasons = {**missing, **cohort.named(dict.fromkeys(np.flatnonzero(~sound).tolist(), DIVERGED))}
        answers = {}
        for round_ in sorted(asked):
            start, stop = np.searchsorted(cohort.rounds, [round_, round_ + 1]).tolist()
            failures = {user: reason for (number, user), reason in reasons.items() if number == round_}
            answers[round_] = Answers(updates.between(start, stop).only(sound[start:stop]), failures)
        return answers

    def _remember(self, cohort: _Cohort, n_items: int, *, private: bool) -> _Remembered:
        """Read the previous trajectory's log of past rounds; who cannot is named with the reason."""
        assert self.previous is not None, "only devices on a new trajectory have a past to go through again"
        entries, logged, absent = self.previous.read(cohort.rounds, self._keys(cohort), private=private)
        missing = cohort.named(absent)
        if missing:
            cohort = cohort.only(~np.isin(np.arange(len(cohort.users)), list(absent)))
        own_ptr, own_items = self.interactions.rows(cohort.places)
        same = logged.positives == np.diff(own_ptr)
        plan, whole = redraw_plan(
            self.sampler, **self._purpose(), n_items=n_items, own_ptr=own_ptr, own_items=own_items,
            user_keys=self._keys(cohort), rounds=cohort.rounds, walk_ptr=logged.walk_ptr, walks=logged.walks,
        )  # fmt: skip
        sound = same & whole & (np.diff(plan.item_ptr) == np.diff(logged.row_ptr))
        if sound.all():
            return _Remembered(cohort, entries, logged, plan, missing)
        reasons = np.where(same, DAMAGED, CHANGED).tolist()
        found = cohort.named({int(place): reasons[place] for place in np.flatnonzero(~sound)})
        rest = self._remember(cohort.only(sound), n_items, private=private)
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

    def _plan(self, public: Public, cohort: _Cohort) -> Plan:
        own_ptr, own_items = self.interactions.rows(cohort.places)
        return draw_plan(
            self.sampler, **self._purpose(), items=public.items, users=cohort.private, own_ptr=own_ptr,
            own_items=own_items, user_keys=self._keys(cohort), rounds=cohort.rounds,
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


def _add_up(trained: Trained, cohort: _Cohort, sound: NDArray[np.bool_]) -> None:
    """Let a user's private parameters after a round have its updates of the earlier rounds in them too, in place."""
    order = np.lexsort((cohort.rounds, cohort.places))
    order = order[sound[order]]
    for before, now in itertools.pairwise(order.tolist()):
        if cohort.places[before] == cohort.places[now]:
            trained.private[now] += trained.private[before] - cohort.private[before]


def _sound(trained: Trained) -> NDArray[np.bool_]:
    """Which clients' training did not diverge."""
    return np.asarray(np.isfinite(trained.private).all(axis=1))
