"""DeviceLog: the update log and the private parameters of some users."""

from __future__ import annotations

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
from fedforget.errors import RunError, SystemLimitError
from fedforget.models.parameters import Array
from fedforget.protocol import reasons
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.log import Log
from fedforget.runtime.fallbacks import announce, expected
from fedforget.runtime.randomness import Rounds

#: Later than any round.
LAST = 2**31 - 1


class DeviceLog:
    """Encodes entries, keeps them within the quota, and stores them."""

    def __init__(self, config: Log, codec: Codec, store: LogStore, *, seed: int) -> None:
        self.config = config
        self.codec = codec
        self.store = store
        self.seed = seed
        self._quota = Quota(config, store) if config.quota else None

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
        """Log the training of these users, all in one round or each in its own.

        Lengths that are already computed can be passed. Only the users marked in ``sound`` are logged; all by default.
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
        """Log copies of these entries with other private parameters."""
        self.append(rounds, self.codec.renewed(rounds, entries, private), private)

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Store entries within the quota."""
        admitted = entries if self._quota is None else self._quota.admit(rounds, entries)
        self.store.append(rounds, admitted, private)

    def read(self, rounds: Rounds, keys: Keys, *, private: bool = True) -> tuple[Entries, Logged, dict[int, str]]:
        """The valid entries of these users, each for its round; their content; and why the others have none.

        Users without a valid entry are given by their place in ``keys``. Rounds must be in ascending order.
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
                place: by_size.get(sizes.get(place), reasons.ENTRY_DAMAGED)
                for place in np.setdiff1d(np.arange(keys.size), at[sound]).tolist()
            }
        return (entries if sound.all() else entries.at(sound)), logged, missing

    def _stored(self, round_: int, keys: Keys) -> Entries:
        """The entries of a round; none, with a warning, if they cannot be read."""
        try:
            return self.store.read(round_, keys)
        except SystemLimitError:
            raise
        except RunError as error:
            text = f"the update log of round {round_} cannot be read and counts as missing"
            announce(f"{error.problem} It counts as missing.", self._source, text, keys.tolist(), stacklevel=2)
            return NOTHING

    @property
    def _source(self) -> Path | str:
        """The folder of the log; empty in memory."""
        return getattr(self.store, "folder", "")

    def private(self, until: int, keys: Keys, initial: Array) -> Array:
        """The private parameters of users after a round; ``initial`` are those from before their first round.

        They are exact where the store has them. Else they come from the newest entry that is not damaged.
        """
        rows = initial.copy()
        exact = self._undamaged(self.store.private_state(until), until, keys)
        known, at = find(exact.keys, keys)
        if known.size:
            rows[known] = exact.rows[at]
        places = np.delete(np.arange(keys.size), known)
        while places.size and until > 0:
            entries, rounds = self.store.newest(until, keys[places])
            if not len(entries):
                break
            logged, sound = self.codec.decode(rounds, entries)
            rows[places[find(keys[places], logged.keys)[1]]] = logged.private
            if sound.all():
                break
            text = "entries are damaged or had no room: the private parameters come from the entries before them"
            announce(
                f"{np.count_nonzero(~sound)} log entries of round {rounds[~sound].min()} or later are damaged or had "
                "no room: the private parameters come from the entries before them.",
                self._source,
                text,
                entries.keys[~sound].tolist(),
            )
            places = places[find(keys[places], entries.keys[~sound])[1]]
            until = int(rounds[~sound].max()) - 1
        return rows

    def _undamaged(self, exact: PrivateState, until: int, keys: Keys) -> PrivateState:
        """Exact parameters without those that are older than the user's newest entry because newer ones are damaged.

        A kill leaves damaged ones too, but of a round that has no entry.
        """
        stale = self._stale(exact, until, np.intersect1d(exact.damaged, keys))[0]
        _announce(exact, stale.keys)
        return exact.without(stale.keys)

    def _stale(self, exact: PrivateState, until: int, suspects: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entries up to a round of users whose exact parameters are older or missing, and their rounds."""
        if not suspects.size or until <= 0:
            return NOTHING, np.empty(0, np.int64)
        entries, rounds = self.store.newest(until, suspects)
        known, at = find(entries.keys, exact.keys)
        stale = np.ones(len(entries), bool)
        stale[at] = exact.rounds[known] < rounds[at]
        return entries.at(stale), rounds[stale]

    def _set_from_entries(self, store: LogStore, entries: Entries, rounds: NDArray[np.int64]) -> None:
        """Set the private parameters in a store to those of entries."""
        if len(entries):
            logged, sound = self.codec.decode(rounds, entries)
            store.set_private_state(PrivateState(logged.keys, rounds[sound], logged.private))

    def branch(self, folder: Path | None, until: int, without: Keys) -> DeviceLog:
        """A new log with everything up to a round except what belongs to some users."""
        store = self.store.branch(folder, until, without)
        exact = self.store.private_state(until)
        stale = self._stale(exact, until, np.setdiff1d(exact.damaged, without))
        _announce(exact, stale[0].keys)
        self._set_from_entries(store, *stale)
        return DeviceLog(self.config, self.codec, store, seed=self.seed)

    def copy_to(self, other: DeviceLog) -> None:
        """Copy everything into another log, encoded by its settings."""
        for round_, keys, _ in self.store.heads():
            _, logged, missing = self.read(round_, keys)
            invalid = keys[[place for place, reason in missing.items() if reason != reasons.NO_ENTRY]]
            if invalid.size:
                with expected():
                    initial = np.zeros((invalid.size, logged.private.shape[1]), np.float32)
                    private = self.private(round_, invalid, initial)
                other.append(round_, self.store.read(round_, invalid), private)
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
        """Remove everything after a round.

        If only some of the rounds that were logged in one step are removed, the stored private parameters are from
        before the step. They are then replaced by those of the newest entry.
        """
        before = self.store.private_state(LAST)
        changed = before.keys[before.rounds > round_]
        self.store.roll_back(round_)
        if changed.size:
            exact = self.store.private_state(round_)
            entries, rounds = self._stale(exact, round_, np.intersect1d(changed, exact.keys))
            self._set_from_entries(self.store, entries, rounds)
        if before.damaged.size:
            self._set_from_entries(self.store, *self._stale(self.store.private_state(round_), round_, before.damaged))
        if self._quota is not None:
            self._quota = Quota(self.config, self.store)

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return self.store.last_round()

    def close(self) -> None:
        """Close the files."""
        self.store.close()


def _announce(exact: PrivateState, keys: Keys) -> None:
    """Warn of private parameters that are damaged."""
    if keys.size:
        instead = "are damaged. Those in the update log are used instead, which may be rounded"
        warning = f"{exact.source}: the private parameters of {keys.size} users {instead}."
        announce(warning, exact.source, f"private parameters {instead}", keys.tolist(), stacklevel=3)


def open_log(config: DeviceConfig, federation: str, store: LogStore) -> DeviceLog:
    """The update log of a federation in a store."""
    model = config.model
    codec = Codec(config.log, federation, model.update_layout, model.dim, model.private_layout.size)
    return DeviceLog(config.log, codec, store, seed=config.seed)
