"""PackedStore: the logs of many thousands of simulated users, in a file a round and one mapped file.

rounds/NNNNNN.log   never changed, only replaced as a whole; little endian throughout
    magic 8s "fedround", format u4, users u4, round u8, federation 32s (its id, filled up with zeros)
    keys u8[users], ptr u8[users + 1], crc u4 (CRC-32 of all before it), zero u4
    the entries, user i's being bytes ptr[i] to ptr[i + 1] from here
private.bin         exact private parameters, changed in place (``device.log.private``)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import Exact, others
from fedforget.device.log.entries import NOTHING, Entries, Keys, by_round, check, find, joined, latest, scan, without
from fedforget.device.log.private import PrivateFile
from fedforget.device.log.sealed import CRC, foreign, is_whole, sealed, unreadable
from fedforget.errors import RunError
from fedforget.files import cannot_write, link_file, make_folder, write_file
from fedforget.models.parameters import Array
from fedforget.randomness import Rounds

FORMAT = 1
ROUND = struct.Struct("<8sIIQ32s")
ROUND_START = struct.pack("<8sI", b"fedround", FORMAT)


class PackedStore:
    """Keeps nothing of the entries in memory, and of the users a sorted index of 16 bytes each."""

    def __init__(self, folder: Path, federation: str) -> None:
        if len(federation.encode()) > 32:
            raise ValueError(f"A federation's id has at most 32 characters, not {federation!r}.")
        self.folder = folder
        self.federation = federation
        self._rounds = folder / "rounds"
        self._made = False
        self._private = PrivateFile(folder / "private.bin", federation)

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Add entries, and what each user's private parameters are after the last of its rounds. All or nothing."""
        rounds = check(rounds, entries, private)
        if not len(entries):
            return
        self._make_folder()
        last = latest(rounds, entries.keys)
        undo = self._private.put(entries.keys[last], rounds[last], private[last], keep_before=True)
        replaced: list[tuple[int, Entries]] = []
        try:
            for round_, part in by_round(rounds, entries):
                before = self._load(round_)
                self._save(round_, joined([without(before, part.keys), part]) if len(before) else part)
                replaced.append((round_, before))
        except RunError:
            undo()
            for round_, before in replaced:
                if len(before):
                    self._save(round_, before)
                else:
                    self._unlink([self._path(round_)])
            raise

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of those of these users who have one for the round, in the order asked."""
        entries = self._load(round_)
        return entries if np.array_equal(entries.keys, keys) else entries.at(find(entries.keys, keys)[1])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry up to a round of those of these users who have one, and the round of each."""
        rounds = (round_ for round_ in reversed(self._numbers()) if round_ <= until)
        return scan(rounds, keys, lambda round_: self._head(round_)[0], self._load)

    def exact(self, until: int) -> Exact:
        """Of every user of whom it is known: the private parameters after the last round up to this one."""
        return self._private.exact(until)

    def set_exact(self, exact: Exact) -> None:
        """Let these be the private parameters of these users; nothing is known of what they were before."""
        if exact.keys.size:
            self._make_folder()
            self._private.put(exact.keys, exact.rounds, exact.rows, keep_before=False)

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round, and exact private parameters of later rounds.

        The newest files go first, so that a crash leaves no gap. What a crash left half written goes too.
        """
        later = [number for number in reversed(self._numbers()) if number > round_]
        self._unlink([self._path(number) for number in later])
        self._unlink([*self.folder.glob(".*.part"), *self._rounds.glob(".*.part")])
        self._private.roll_back(round_)

    def drop(self, round_: int, keys: Keys) -> None:
        """Drop the entries of some users for one round."""
        entries = self._load(round_)
        rest = without(entries, keys)
        if len(entries) and not len(rest):
            self._unlink([self._path(round_)])
        elif len(rest) < len(entries):
            self._save(round_, rest)

    def branch(self, folder: Path | None, until: int, without: Keys) -> PackedStore:
        """A new store in a new folder that begins as this one up to a round, with no trace of some users.

        The files of rounds without them are shared with this store, where the disk can: neither changes a file.
        """
        new = PackedStore(_new_folder(folder), self.federation)
        new._make_folder()
        for round_ in self._numbers():
            if round_ <= until:
                self._hand_on(round_, new, without)
        new.set_exact(others(self.exact(until), without))
        return new

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For every round with entries, the oldest first: whose they are, and how many bytes each has."""
        for round_ in self._numbers():
            keys, ptr = self._head(round_)
            yield round_, keys, np.diff(ptr)

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return max(self._numbers(), default=0)

    def close(self) -> None:
        """Let go of the mapped file."""
        self._private.close()

    def _make_folder(self) -> None:
        if not self._made:
            make_folder(self._rounds)
            self._made = True

    def _path(self, round_: int) -> Path:
        return self._rounds / f"{round_:06d}.log"

    def _numbers(self) -> list[int]:
        """The rounds with a file, in order; looked up each time, since another process may have gone on."""
        try:
            with os.scandir(self._rounds) as files:
                names = [file.name.removesuffix(".log") for file in files if file.name.endswith(".log")]
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def _load(self, round_: int) -> Entries:
        """A round's entries. Those that a damaged file cuts short end early: their own checksum tells."""
        path = self._path(round_)
        try:
            raw = bytearray(path.read_bytes())
        except FileNotFoundError:
            return NOTHING
        except OSError as error:
            raise unreadable(path, str(error.strerror)) from error
        keys, ptr = _parse(path, raw, self.federation, round_)
        data = np.frombuffer(raw, np.uint8, offset=_head_size(keys.size))
        return Entries(keys, np.minimum(ptr, data.size), data)

    def _head(self, round_: int) -> tuple[Keys, NDArray[np.int64]]:
        """A round's keys and where their entries begin, without reading the entries."""
        path = self._path(round_)
        try:
            with path.open("rb", buffering=0) as file:
                raw = bytearray(file.read(ROUND.size))
                users = ROUND.unpack(raw)[2] if len(raw) == ROUND.size else 0
                raw += file.read(min(_head_size(users), path.stat().st_size))
        except OSError as error:
            raise unreadable(path, str(error.strerror)) from error
        return _parse(path, raw, self.federation, round_)

    def _save(self, round_: int, entries: Entries) -> None:
        start = ROUND.pack(b"fedround", FORMAT, len(entries), round_, self.federation.encode())
        ptr = entries.ptr - entries.ptr[0]
        head = start + entries.keys.astype("<u8").tobytes() + ptr.astype("<i8").tobytes()
        data = entries.data[entries.ptr[0] : entries.ptr[-1]].tobytes()
        write_file(self._path(round_), sealed(head) + data)

    def _hand_on(self, round_: int, new: PackedStore, leavers: Keys) -> None:
        """Give a round's file to a branch: the file itself if no leaver is in it."""
        if not np.isin(self._head(round_)[0], leavers).any():
            link_file(self._path(round_), new._path(round_))
            return
        rest = without(self._load(round_), leavers)
        if len(rest):
            new._save(round_, rest)

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(path, error) from error


def _head_size(users: int) -> int:
    return ROUND.size + 8 * users + 8 * (users + 1) + CRC.size


def _parse(path: Path, raw: bytearray, federation: str, round_: int) -> tuple[Keys, NDArray[np.int64]]:
    """The keys of a round's file and where their entries begin, once its head is known to be whole and ours."""
    if not raw.startswith(ROUND_START) or len(raw) < ROUND.size:
        raise unreadable(path, "it is damaged, or of another version")
    _, _, users, number, owner = ROUND.unpack_from(raw)
    if not is_whole(raw[: _head_size(users)]) or number != round_:
        raise unreadable(path, "its head is damaged or cut short")
    if owner.rstrip(b"\0") != federation.encode():
        raise foreign(path)
    keys = np.frombuffer(raw, "<u8", users, ROUND.size)
    return keys, np.frombuffer(raw, "<i8", users + 1, ROUND.size + keys.nbytes)


def _new_folder(folder: Path | None) -> Path:
    if folder is None:
        raise ValueError("A log on disk can only branch into a folder; give one.")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty.", "A log branches into a new folder: remove it, or choose another.")
    return folder
