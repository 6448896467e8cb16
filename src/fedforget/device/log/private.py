"""PrivateFile: exact private parameters of many users in one mapped file, ``private.bin``, changed in place.

    magic 8s "fedslots", format u4, dim u4, federation 32s, crc u4 (of everything before it), zero u4
    a record per user: key u8, then two slots of check u8, round u4, row f4[dim]; an empty slot is all zeros

A slot's check starts as F + key; each word of round and row, 4 bytes, changes it to check * F + word modulo 2^64. F is
FACTOR. It is odd, so that every change within one word changes the check. The older slot is the one that is written. If
a kill leaves it half written, its check fails and the slot counts as empty; the other slot has the round before.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState
from fedforget.device.log.disk import CRC, foreign, is_whole, sealed, unreadable
from fedforget.device.log.entries import Keys
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact
from fedforget.runtime.files import can_write, cannot_write, write_file

FORMAT = 1
PRIVATE = struct.Struct("<8sII32s")
PRIVATE_START = struct.pack("<8sI", b"fedslots", FORMAT)
HEAD = PRIVATE.size + CRC.size
FACTOR, HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)

#: Records as a structured array, with the fields of ``_record_type``.
Records = NDArray[Any]


class PrivateFile:
    """Two slots of private parameters per user, changed in place. Sees what other processes write."""

    def __init__(self, path: Path, federation: str) -> None:
        self._path = path
        self._federation = federation
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._seen = (0, 0)
        self._records: Records = np.empty(0, _record_type(0))
        self._keys: Keys = np.empty(0, np.uint64)
        self._places: NDArray[np.int64] = np.empty(0, np.int64)

    def put(self, keys: Keys, rounds: NDArray[np.int64], rows: Array, keep_before: bool) -> Callable[[], None]:
        """Store users' private parameters after a round; returns a function that undoes it.

        The slot of the same round is used, else the older one. Without ``keep_before`` a user's other slot is emptied.
        With it, a user who has two later rounds does not change.
        """
        self._map(create=rows.shape[1])
        size = self._seen[1]
        spots = np.searchsorted(self._keys, keys)
        known = spots < self._keys.size
        known[known] = self._keys[spots[known]] == keys[known]
        places = self._places[spots[known]]
        before = self._records.take(places)
        changed = before.copy()
        _fill(changed, rounds[known], rows[known], keep_before)
        if not known.all():
            new = np.zeros(np.count_nonzero(~known), self._records.dtype)
            new["key"] = keys[~known]
            _fill(new, rounds[~known], rows[~known], keep_before)
            self._add(new)
        _words(self._records)[places] = _words(changed)

        def undo() -> None:
            self._records[places] = before
            if self._seen[1] > size:
                os.truncate(self._path, size)

        return undo

    def private_state(self, until: int) -> PrivateState:
        """The newest slot up to a round of each user who has one, in the order of keys."""
        self._map()
        stored = _stored_rounds(self._records)[self._places]
        damaged = self._keys[(self._filled()[self._places] & (stored < 0)).any(axis=1)]
        stored[stored > until] = -1
        users, slots = np.flatnonzero(stored.max(axis=1) >= 0), stored.argmax(axis=1)
        rows = self._records["slots"]["row"][self._places[users], slots[users]]
        return PrivateState(self._keys[users], stored[users, slots[users]], rows, damaged, str(self._path))

    def _filled(self) -> NDArray[np.bool_]:
        """Which slots are not empty, by record and slot."""
        slots = self._records["slots"]
        words = _words(self._records)[:, 2:].reshape(*slots.shape, slots.dtype.itemsize // 4)
        return np.asarray(words.any(axis=2))

    def roll_back(self, round_: int) -> None:
        """Overwrite slots of later rounds, and slots that fail their check, with zeros."""
        self._map()
        stored, slots = _stored_rounds(self._records), self._records["slots"]
        slots[(stored > round_) | ((stored < 0) & self._filled())] = np.zeros((), slots.dtype)

    def _map(self, create: int | None = None) -> None:
        """Map the current file and index new records. Without a file, one is made for rows of length ``create``."""
        if create is not None and not self._path.exists():
            write_file(self._path, sealed(PRIVATE.pack(b"fedslots", FORMAT, create, self._federation.encode())))
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return self.close()
        if (now.st_ino, now.st_size) != self._seen:
            if now.st_ino != self._seen[0] or now.st_size < self._seen[1]:
                self.close()
            self._index(self._mapped())
            self._seen = (now.st_ino, now.st_size)
        (dim,) = self._records.dtype["slots"].base["row"].shape
        if create not in (None, dim):
            raise ValueError(f"{self._path} holds private vectors of {dim} numbers, not {create}.")
        return None

    def _mapped(self) -> Records:
        """The records of the file; writing to the array writes to the file."""
        writable = can_write(self._path)
        try:
            with self._path.open("r+b" if writable else "rb") as file:
                head = file.read(HEAD)
                if not is_whole(head) or not head.startswith(PRIVATE_START):
                    raise unreadable(self._path, "its head is damaged or of another version")
                _, _, dim, owner = PRIVATE.unpack_from(head)
                if owner.rstrip(b"\0") != self._federation.encode():
                    raise foreign(self._path)
                raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY)
        except OSError as error:
            raise unreadable(self._path, error) from error
        record = _record_type(dim)
        return np.frombuffer(raw, record, (len(raw) - HEAD) // record.itemsize, HEAD)

    def _index(self, records: Records) -> None:
        n_indexed = len(self._records)
        keys = records["key"][n_indexed:]
        order = np.argsort(keys)
        spots = np.searchsorted(self._keys, keys[order], side="right")
        self._keys = np.insert(self._keys, spots, keys[order])
        self._places = np.insert(self._places, spots, order + n_indexed)
        self._records = records

    def _add(self, records: Records) -> None:
        """Add records at the end. They are written, not mapped: a full disk is then an error and not a signal."""
        end = HEAD + self._records.nbytes
        try:
            with self._path.open("r+b", buffering=0) as file:
                file.seek(end)
                done = file.write(records.tobytes())
                if done < records.nbytes:
                    file.truncate(end)
                    raise OSError(f"only {done} of {records.nbytes} bytes could be written")
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._map()


def _record_type(dim: int) -> np.dtype[Any]:
    slot = np.dtype([("check", "<u8"), ("round", "<u4"), ("row", "<f4", (dim,))])
    return np.dtype([("key", "<u8"), ("slots", slot, (2,))])


def _fill(records: Records, rounds: NDArray[np.int64], rows: Array, keep_before: bool) -> None:
    """Put each row into a slot of its record; see ``PrivateFile.put``."""
    stored = _stored_rounds(records)
    second = (stored[:, 1] == rounds) | ((stored[:, 0] != rounds) & (stored[:, 1] < stored[:, 0]))
    places = np.flatnonzero(rounds >= stored.min(axis=1)) if keep_before else np.arange(rounds.size)
    slots, chosen = records["slots"], second[places].astype(np.int64)
    if not keep_before:
        slots[places, 1 - chosen] = np.zeros((), slots.dtype)
    slots["round"][places, chosen] = rounds[places]
    slots["row"][places, chosen] = rows[places]
    slots["check"][places, chosen] = _checks(_words(records))[places, chosen]


def _stored_rounds(records: Records) -> NDArray[np.int64]:
    """The round of each slot, by record and slot; -1 where the slot is empty or its check fails."""
    slots = records["slots"]
    return np.where(slots["check"] == _checks(_words(records)), slots["round"].astype(np.int64), -1)


def _words(records: Records) -> NDArray[np.uint32]:
    """Records as rows of 4-byte words."""
    return records.view(np.uint32).reshape(len(records), records.dtype.itemsize // 4)


@exact
def _checks(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """The check that each slot should have, by record and slot."""
    size = words.shape[1] // 2 - 1
    checks = np.empty((words.shape[0], 2), np.uint64)
    for i in range(words.shape[0]):
        key = np.uint64(words[i, 0]) | np.uint64(words[i, 1]) << HALF
        for slot in range(2):
            check = FACTOR + key
            for word in words[i, 4 + slot * size : 2 + (slot + 1) * size]:
                check = check * FACTOR + np.uint64(word)
            checks[i, slot] = check
    return checks
