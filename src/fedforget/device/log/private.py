"""PrivateFile: exact private parameters of many users in one mapped file, ``private.bin``, changed in place.

    magic 8s "fedslots", format u4, dim u4, federation 32s, crc u4 (of all before it), zero u4
    a record a user: key u8, then two slots of check u8, round u4, row f4[dim]; an empty slot is all zeros

A slot's check begins as F + key and takes in the words of round and row, 4 bytes each, as check * F + word modulo 2^64
(F is FACTOR, odd: no change within one word escapes it). A slot that a kill left half written fails it and counts as
empty; its neighbour holds the round before, since the older slot is the one written to.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState
from fedforget.device.log.entries import Keys
from fedforget.device.log.sealed import CRC, foreign, is_whole, sealed, unreadable
from fedforget.models.parameters import Array
from fedforget.runtime.compiled import exact
from fedforget.runtime.files import cannot_write, write_file

FORMAT = 1
PRIVATE = struct.Struct("<8sII32s")
PRIVATE_START = struct.pack("<8sI", b"fedslots", FORMAT)
HEAD = PRIVATE.size + CRC.size
FACTOR, LOW, HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFFFFFFFF), np.uint64(32)

Words = NDArray[np.uint32]


class PrivateFile:
    """Two slots of private parameters a user, changed in place. What is mapped is what any process wrote last."""

    def __init__(self, path: Path, federation: str) -> None:
        self._path = path
        self._federation = federation
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._seen = (0, 0)
        self._words: Words = np.empty((0, 8), np.uint32)
        self._keys: Keys = np.empty(0, np.uint64)
        self._places: NDArray[np.int64] = np.empty(0, np.int64)

    def put(self, keys: Keys, rounds: NDArray[np.int64], rows: Array, keep_before: bool) -> Callable[[], None]:
        """Note what users have after a round, each in its older slot or that of the same round; returns the undoing.

        Without ``keep_before`` a user's other slot is emptied. A user with two later rounds stays as it is.
        """
        self._map(create=rows.shape[1])
        at, size = _places(self._keys, self._places, keys), self._seen[1]
        known, row_words = at[at >= 0], np.ascontiguousarray(rows, np.float32).view(np.uint32)
        before = self._words[known]
        if known.size < keys.size:
            fresh = at < 0
            self._add(_records(keys[fresh], rounds[fresh], row_words[fresh]))
        _put(self._words, at, keys, rounds, row_words, keep_before)

        def undo() -> None:
            self._words[known] = before
            if self._seen[1] > size:
                os.truncate(self._path, size)

        return undo

    def private_state(self, until: int) -> PrivateState:
        """Of each user with a slot up to a round: the newest such, in the order of keys."""
        self._map()
        held = _held(self._words)[self._places]
        held[held > until] = -1
        there, slot = np.flatnonzero(held.max(1) >= 0), held.argmax(1)
        rows = _slots(self._words)[self._places[there], slot[there], 3:]
        return PrivateState(self._keys[there], held[there, slot[there]], rows.view(np.float32))

    def roll_back(self, round_: int) -> None:
        """Overwrite the slots of later rounds, and torn ones, with zeros."""
        self._map()
        held, slots = _held(self._words), _slots(self._words)
        slots[(held > round_) | ((held < 0) & slots.any(2))] = 0

    def _map(self, create: int | None = None) -> None:
        """Map the file as it is now, made for rows of this length if there is none, and index records that are new."""
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
        dim = self._words.shape[1] // 2 - 4
        if create not in (None, dim):
            raise ValueError(f"{self._path} holds private vectors of {dim} numbers, not {create}.")
        return None

    def _mapped(self) -> Words:
        """The records of the file, as words that can be written to."""
        try:
            with self._path.open("r+b") as file:
                head = file.read(HEAD)
                if not is_whole(head) or not head.startswith(PRIVATE_START):
                    raise unreadable(self._path, "its head is damaged or of another version")
                _, _, dim, owner = PRIVATE.unpack_from(head)
                if owner.rstrip(b"\0") != self._federation.encode():
                    raise foreign(self._path)
                raw = mmap.mmap(file.fileno(), 0)
        except OSError as error:
            raise unreadable(self._path, str(error.strerror)) from error
        width = 2 + 2 * (3 + dim)
        count = (len(raw) - HEAD) // (4 * width)
        return np.frombuffer(raw, "<u4", count * width, HEAD).reshape(count, width)

    def _index(self, words: Words) -> None:
        known = len(self._words)
        fresh = np.ascontiguousarray(words[known:, :2]).view(np.uint64)[:, 0]
        order = np.argsort(fresh)
        spots = np.searchsorted(self._keys, fresh[order], side="right")
        self._keys = np.insert(self._keys, spots, fresh[order])
        self._places = np.insert(self._places, spots, order + known)
        self._words = words

    def _add(self, records: Words) -> None:
        """Add records at the end. They are written, not mapped: a full disk is then an error and not a signal."""
        end = HEAD + self._words.nbytes
        try:
            with self._path.open("r+b", buffering=0) as file:
                file.seek(end)
                done = file.write(records.tobytes())
                if done < records.nbytes:
                    file.truncate(end)
                    raise OSError(f"the disk took {done} of {records.nbytes} bytes")
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._map()


def _slots(records: Words) -> Words:
    """The slots of records, as a view: (record, slot, word), the words being two of check, round, row."""
    return records[:, 2:].reshape(len(records), 2, records.shape[1] // 2 - 1)


def _records(keys: Keys, rounds: NDArray[np.int64], rows: Words) -> Words:
    """Records of new users."""
    records = np.zeros((keys.size, 8 + 2 * rows.shape[1]), np.uint32)
    records[:, :2] = np.ascontiguousarray(keys).view(np.uint32).reshape(-1, 2)
    _put(records, np.arange(keys.size), keys, rounds, rows, True)
    return records


@exact
def _places(ordered: Keys, places: NDArray[np.int64], keys: Keys) -> NDArray[np.int64]:
    """The place of each user's record; -1 for a user without one."""
    at = np.full(keys.size, -1, np.int64)
    for i in range(keys.size):
        spot = np.searchsorted(ordered, keys[i])
        if spot < ordered.size and ordered[spot] == keys[i]:
            at[i] = places[spot]
    return at


@exact
def _check(key: np.uint64, slot: Words) -> np.uint64:
    total = FACTOR + key
    for word in slot[2:]:
        total = total * FACTOR + np.uint64(word)
    return total


@exact
def _held(records: Words) -> NDArray[np.int64]:
    """The round of each slot, by record and slot; -1 where there is none that its check confirms."""
    size = records.shape[1] // 2 - 1
    held = np.full((records.shape[0], 2), -1, np.int64)
    for i in range(records.shape[0]):
        key = np.uint64(records[i, 0]) | np.uint64(records[i, 1]) << HALF
        for s in range(2):
            slot = records[i, 2 + s * size : 2 + (s + 1) * size]
            if np.uint64(slot[0]) | np.uint64(slot[1]) << HALF == _check(key, slot):
                held[i, s] = slot[2]
    return held


@exact
def _put(
    records: Words, at: NDArray[np.int64], keys: Keys, rounds: NDArray[np.int64], rows: Words, keep_before: bool
) -> None:
    """Write rows into the slots of the records at these places (none where it is -1)."""
    size = records.shape[1] // 2 - 1
    for i in range(at.size):
        if at[i] < 0:
            continue
        held = _held(records[at[i] : at[i] + 1])[0]
        if keep_before and rounds[i] < held.min():
            continue
        s = 1 if held[1] == rounds[i] or (held[0] != rounds[i] and held[1] < held[0]) else 0
        slot = records[at[i], 2 + s * size : 2 + (s + 1) * size]
        slot[2] = rounds[i]
        slot[3:] = rows[i]
        check = _check(keys[i], slot)
        slot[0] = check & LOW
        slot[1] = check >> HALF
        if not keep_before:
            records[at[i], 2 + (1 - s) * size : 2 + (2 - s) * size] = 0
