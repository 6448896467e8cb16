"""DeviceLog: what the devices of some users remember of their rounds, and what private parameters they had."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.norms import row_lengths, tensor_lengths
from fedforget.device.log.codec import Codec, Logged
from fedforget.device.log.contract import LogStore, PrivateState
from fedforget.device.log.entries import NOTHING, Entries, Keys, find, joined
from fedforget.device.log.quota import Quota
from fedforget.device.log.row_selection import select
from fedforget.device.plan import Plan
from fedforget.device.training import Trained
from fedforget.errors import RunError, RunWarning
from fedforget.models.parameters import Array
from fedforget.protocol import reasons
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.log import Log
from fedforget.runtime.randomness import Rounds

#: Later than any round.
LAST = 2**31 - 1


class DeviceLog:
    """A codec and a store, within a quota."""

    def __init__(self, settings: Log, codec: Codec, store: LogStore, *, seed: int) -> None:
        self.config = settings
        self.codec = codec
        self.store = store
        self.seed = seed
        self._quota = Quota(settings, store) if settings.quota else None

    def record(
        self,
        rounds: Rounds,
        keys: Keys,
        plan: Plan,
        trained: Trained,
        lengths: Array | None = None,
        dense_lengths: Array | None = None,
        sound: NDArray[np.bool_] | None = None,
    ) -> None:
        """Log what these users did in a round, or each in its own; of some only, if ``sound`` says so.

        Known lengths may be given.
        """
        lengths = row_lengths(trained.rows) if lengths is None else lengths
        logged = Logged(
            keys,
            plan.positives,
            plan.item_ptr,
            plan.bit_ptr,
            plan.draw_bits,
            select(self.config, plan.item_ptr, lengths, keys, self.seed, rounds),
            lengths,
            tensor_lengths(trained.dense, self.codec.layout) if dense_lengths is None else dense_lengths,
            trained.private,
            trained.rows,
            trained.dense,
        )
        if sound is not None and not sound.all():
            logged = logged.only(sound)
            rounds = rounds if isinstance(rounds, int) else rounds[sound]
        self.append(rounds, self.codec.encode(rounds, logged), logged.private)

    def renew(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Log that a round went as these entries say but for the private parameters."""
        self.append(rounds, self.codec.renewed(rounds, entries, private), private)

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Store entries as they are."""
        kept = entries if self._quota is None else self._quota.admit(rounds, entries)
        self.store.append(rounds, kept, private)

    def read(self, rounds: Rounds, keys: Keys, *, private: bool = True) -> tuple[Entries, Logged, dict[int, str]]:
        """The sound entries of these users, each for its round; what they say; and why each other has none.

        Who has none is given by its place among the users. Rounds are in ascending order.
        """
        of_each = np.full(keys.size, rounds, np.int64)
        parts, found = [NOTHING], [np.empty(0, np.int64)]
        for round_ in np.unique(of_each).tolist():
            places = np.flatnonzero(of_each == round_)
            part = self._stored(round_, keys[places])
            parts.append(part)
            found.append(places[find(keys[places], part.keys)[1]])
        entries, at = joined(parts) if len(parts) != 2 else parts[1], np.concatenate(found)
        logged, sound = self.codec.decode(of_each[at], entries, private=private)
        missing: dict[int, str] = {}
        if len(logged.keys) < keys.size:
            sizes = dict(zip(at.tolist(), np.diff(entries.ptr).tolist(), strict=True))
            by_size = {None: reasons.NO_ENTRY, 0: reasons.LOG_FULL}
            missing = {
                int(place): by_size.get(sizes.get(int(place)), reasons.ENTRY_DAMAGED)
                for place in np.setdiff1d(np.arange(keys.size), at[sound])
            }
        return (entries if sound.all() else entries.at(np.flatnonzero(sound))), logged, missing

    def _stored(self, round_: int, keys: Keys) -> Entries:
        """The entries of a round, none if they cannot be read."""
        try:
            return self.store.read(round_, keys)
        except RunError as error:
            warnings.warn(f"{error.problem} It counts as missing.", RunWarning, stacklevel=3)
            return NOTHING

    def private(self, until: int, keys: Keys, initial: Array) -> Array:
        """The private parameters after a round of users who began with ``initial``, as exactly as they are known."""
        rows = initial.copy()
        exact = self.store.private_state(until)
        known, at = find(exact.keys, keys)
        if known.size:
            rows[known] = exact.rows[at]
        unknown = np.delete(np.arange(keys.size), known)
        self._fill_from_entries(until, keys, unknown, rows)
        return rows

    def _fill_from_entries(self, until: int, keys: Keys, places: NDArray[np.int64], rows: Array) -> None:
        """What the newest entries tell; where one is damaged, the one before it."""
        left = until
        while places.size and left > 0:
            entries, rounds = self.store.newest(left, keys[places])
            if not len(entries):
                return
            logged, sound = self.codec.decode(rounds, entries)
            rows[places[find(keys[places], logged.keys)[1]]] = logged.private
            if sound.all():
                return
            warnings.warn(
                f"{np.count_nonzero(~sound)} log entries of round {rounds[~sound].min()} or later are damaged or had "
                "no room: the private parameters come from the entries before them.",
                RunWarning,
                stacklevel=3,
            )
            places = places[find(keys[places], entries.keys[~sound])[1]]
            left = int(rounds[~sound].max()) - 1

    def branch(self, folder: Path | None, until: int, without: Keys) -> DeviceLog:
        """A new log that begins as this one up to a round, with no trace of some users."""
        return DeviceLog(self.config, self.codec, self.store.branch(folder, until, without), seed=self.seed)

    def copy_to(self, other: DeviceLog) -> None:
        """Let another log hold what this one does, as far as its settings keep it."""
        for round_, keys, _ in self.store.heads():
            _, logged, missing = self.read(round_, keys)
            lost = keys[[place for place, reason in missing.items() if reason != reasons.NO_ENTRY]]
            if lost.size:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RunWarning)
                    initial = np.zeros((lost.size, logged.private.shape[1]), np.float32)
                    private = self.private(round_, lost, initial)
                other.append(round_, self.store.read(round_, lost), private)
            chosen = select(other.config, logged.row_ptr, logged.lengths, logged.keys, self.seed, round_)
            entries = other.codec.encode(round_, replace(logged, kept=logged.kept & chosen))
            other.append(round_, entries, logged.private)
        exact = self.store.private_state(self.last_round())
        if exact.keys.size:
            other.store.set_private_state(exact)

    def set_private(self, round_: int, keys: Keys, rows: Array) -> None:
        """Set the private parameters of users after a round."""
        self.store.set_private_state(PrivateState(keys, np.full(keys.size, round_, np.int64), rows))

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round.

        Of rounds that were logged together a user may be left with the earlier ones: then its newest entry tells what
        its private parameters were, and not what is known from before these rounds.
        """
        before = self.store.private_state(LAST)
        lost = before.keys[before.rounds > round_]
        self.store.roll_back(round_)
        if lost.size:
            self._renew_exact(round_, lost)
        if self._quota is not None:
            self._quota = Quota(self.config, self.store)

    def _renew_exact(self, round_: int, keys: Keys) -> None:
        entries, rounds = self.store.newest(round_, keys)
        exact = self.store.private_state(round_)
        which, at = find(exact.keys, entries.keys)
        stale = which[exact.rounds[at] < rounds[which]]
        if stale.size:
            logged, sound = self.codec.decode(rounds[stale], entries.at(stale))
            self.store.set_private_state(PrivateState(logged.keys, rounds[stale][sound], logged.private))

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return self.store.last_round()

    def close(self) -> None:
        """Close the files."""
        self.store.close()


def open_log(config: DeviceConfig, federation: str, store: LogStore) -> DeviceLog:
    """The update log of a federation in a store."""
    model = config.model
    codec = Codec(config.log, federation, model.update_layout, model.dim, model.private_layout.size)
    return DeviceLog(config.log, codec, store, seed=config.seed)
