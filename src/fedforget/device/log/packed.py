"""PackedStore: the logs of many thousands of simulated users, in a file a round (or replay step) and one mapped file.

rounds/NNNNNN.log           never changed, only replaced as a whole; little endian throughout
    magic 8s "fedround", format u4 (1), users u4, round u8, federation 32s (its id, filled up with zeros)
    keys u8[users], ptr u8[users + 1], crc u4 (CRC-32 of all before it), zero u4
    the entries, user i's being bytes ptr[i] to ptr[i + 1] from here
rounds/NNNNNN-NNNNNN.log    the same for rounds that were replayed together: format 2, rounds u8[users] after the keys
private.bin                 exact private parameters, changed in place (``device.log.private``)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState, others
from fedforget.device.log.entries import NOTHING, Entries, Keys, check, find, joined, latest
from fedforget.device.log.private import PrivateFile
from fedforget.device.log.sealed import CRC, foreign, is_whole, sealed, unreadable
from fedforget.errors import RunError
from fedforget.models.parameters import Array
from fedforget.runtime.files import cannot_write, link_file, make_folder, write_file
from fedforget.runtime.randomness import Rounds

ROUND = struct.Struct("<8sIIQ32s")
MAGIC = b"fedround"
#: A file of one round, and one of several.
ONE, SEVERAL = 1, 2


class Span(NamedTuple):
    """The rounds that a file is about, from the first to the last: it has entries of none but these."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.first:06d}.log" if self.first == self.last else f"{self.first:06d}-{self.last:06d}.log"

    @classmethod
    def of(cls, rounds: NDArray[np.int64]) -> Span:
        """The span of these rounds."""
        return cls(int(rounds.min()), int(rounds.max()))

    @classmethod
    def named(cls, name: str) -> Span | None:
        """The span of a file of this name; None if it is something else."""
        parts = name.removesuffix(".log").split("-")
        if not name.endswith(".log") or not all(part.isdecimal() for part in parts) or len(parts) > 2:
            return None
        return cls(int(parts[0]), int(parts[-1]))


class PackedStore:
    """Keeps of the entries the file that was read last in memory, and of the users a sorted index of 16 bytes each."""

    def __init__(self, folder: Path, federation: str) -> None:
        if len(federation.encode()) > 32:
            raise ValueError(f"A federation's id has at most 32 characters, not {federation!r}.")
        self.folder = folder
        self.federation = federation
        self._rounds = folder / "rounds"
        self._made = False
        self._private = PrivateFile(folder / "private.bin", federation)
        self._last: tuple[tuple[Span, int, int], NDArray[np.int64], Entries] | None = None
        self._end: int | None = None  # no file here is about a later round, once it is known

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Add entries, and what each user's private parameters are after the last of its rounds. All or nothing."""
        rounds = check(rounds, entries, private)
        if not len(entries):
            return
        self._make_folder()
        last = latest(rounds, entries.keys)
        undo = self._private.put(entries.keys[last], rounds[last], private[last], keep_before=True)
        try:
            self._add(rounds, entries)
        except RunError:
            undo()
            raise

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of those of these users who have one for the round, in the order asked."""
        span = Span(round_, round_)
        if not self._path(span).exists():
            around = [other for other in self._spans() if other.first <= round_ <= other.last]
            if not around:
                return NOTHING
            (span,) = around
        rounds, entries = self._load(span)
        places = np.flatnonzero(rounds == round_)
        return entries.at(places[find(entries.keys[places], keys)[1]])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry up to a round of those of these users who have one, and the round of each."""
        missing = np.arange(keys.size)
        parts, found_in, places = [NOTHING], [missing[:0]], [missing[:0]]
        for span in reversed(self._spans()):
            if not missing.size:
                break
            known, rounds, _ = self._head(span)
            before = np.flatnonzero(rounds <= until)
            last = before[latest(rounds[before], known[before])]
            which, at = find(known[last], keys[missing])
            if which.size:
                parts.append(self._load(span)[1].at(last[at]))
                found_in.append(rounds[last[at]])
                places.append(missing[which])
                missing = np.delete(missing, which)
        order = np.argsort(np.concatenate(places))
        return joined(parts).at(order), np.concatenate(found_in)[order]

    def private_state(self, until: int) -> PrivateState:
        """Of every user of whom it is known: the private parameters after the last round up to this one."""
        return self._private.private_state(until)

    def set_private_state(self, exact: PrivateState) -> None:
        """Let these be the private parameters of these users; nothing is known of what they were before."""
        if exact.keys.size:
            self._make_folder()
            self._private.put(exact.keys, exact.rounds, exact.rows, keep_before=False)

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round, and exact private parameters of later rounds.

        The newest files go first, so that a crash leaves no gap. What a crash left half written goes too.
        """
        self._end = None
        for span in reversed(self._spans()):
            if span.last > round_:
                rounds = self._head(span)[1] if span.first <= round_ else np.empty(0, np.int64)
                self._keep(span, rounds <= round_)
        self._unlink([*self.folder.glob(".*.part"), *self._rounds.glob(".*.part")])
        self._private.roll_back(round_)

    def drop(self, round_: int, keys: Keys) -> None:
        """Drop the entries of some users for one round."""
        for span in self._spans():
            if span.first <= round_ <= span.last:
                known, rounds, _ = self._head(span)
                self._keep(span, ~((rounds == round_) & np.isin(known, keys)))

    def branch(self, folder: Path | None, until: int, without: Keys) -> PackedStore:
        """A new store in a new folder that begins as this one up to a round, with no trace of some users.

        The files of rounds without them are shared with this store, where the disk can: neither changes a file.
        """
        new = PackedStore(_new_folder(folder), self.federation)
        new._make_folder()
        for span in self._spans():
            if span.first <= until:
                self._hand_on(span, new, until, without)
        new.set_private_state(others(self.private_state(until), without))
        return new

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For every round with entries, the oldest first: whose they are, and how many bytes each has."""
        for span in self._spans():
            keys, rounds, ptr = self._head(span)
            for round_ in np.unique(rounds).tolist():
                yield round_, keys[rounds == round_], np.diff(ptr)[rounds == round_]

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        for span in reversed(self._spans()):
            return int(self._head(span)[1].max()) if span.first < span.last else span.last
        return 0

    def close(self) -> None:
        """Let go of the mapped file."""
        self._private.close()
        self._last = self._end = None

    def _make_folder(self) -> None:
        if not self._made:
            make_folder(self._rounds)
            self._made = True

    def _path(self, span: Span) -> Path:
        return self._rounds / span.name

    def _spans(self) -> list[Span]:
        """What there are files of, in order; looked up each time, since another process may have gone on."""
        try:
            with os.scandir(self._rounds) as files:
                spans = [Span.named(file.name) for file in files]
        except FileNotFoundError:
            return []
        found: list[Span] = []
        for span in sorted((span for span in spans if span is not None), key=lambda span: (span.first, -span.last)):
            if (
                not found or span.last > found[-1].last
            ):  # of two about the same rounds, which a kill may leave, the larger
                found.append(span)
        return found

    def _add(self, rounds: NDArray[np.int64], entries: Entries) -> None:
        """Write entries into a file, together with those of files about the same rounds."""
        span = Span.of(rounds)
        around: list[Span] = []
        if self._end is None or span.first <= self._end:
            spans = self._spans()
            around = [other for other in spans if other.first <= span.last and other.last >= span.first]
            self._end = max((other.last for other in spans), default=0)
        for other in around:
            known, there = self._load(other)
            pairs = set(zip(rounds.tolist(), entries.keys.tolist(), strict=True))
            stay = [pair not in pairs for pair in zip(known.tolist(), there.keys.tolist(), strict=True)]
            kept = np.flatnonzero(stay)
            rounds, entries = np.concatenate([known[kept], rounds]), joined([there.at(kept), entries])
        self._save(rounds, entries)
        self._end = max(self._end, span.last)
        self._unlink([self._path(other) for other in around if other != Span.of(rounds)])

    def _keep(self, span: Span, keep: NDArray[np.bool_]) -> None:
        """Let a file keep some of its entries, under its name, and go if there are none."""
        if keep.all() and keep.size:
            return
        if keep.any():
            rounds, entries = self._load(span)
            self._save(rounds[keep], entries.at(np.flatnonzero(keep)), span)
        else:
            self._unlink([self._path(span)])

    def _load(self, span: Span) -> tuple[NDArray[np.int64], Entries]:
        """The rounds and entries of a file. Those that a damaged file cuts short end early: their checksum tells."""
        path = self._path(span)
        try:
            now = path.stat()
            seen = (span, now.st_ino, now.st_mtime_ns)
            if self._last is not None and self._last[0] == seen:
                return self._last[1], self._last[2]
            raw = bytearray(path.read_bytes())
        except OSError as error:
            raise unreadable(path, str(error.strerror)) from error
        keys, rounds, ptr = _parse(path, raw, self.federation, span)
        data = np.frombuffer(raw, np.uint8, offset=_head_size(keys.size, span))
        entries = Entries(keys, np.minimum(ptr, data.size), data)
        self._last = seen, rounds, entries
        return rounds, entries

    def _head(self, span: Span) -> tuple[Keys, NDArray[np.int64], NDArray[np.int64]]:
        """A file's keys, their rounds and where their entries begin, without reading the entries."""
        path = self._path(span)
        try:
            with path.open("rb", buffering=0) as file:
                raw = bytearray(file.read(ROUND.size))
                users = ROUND.unpack(raw)[2] if len(raw) == ROUND.size else 0
                raw += file.read(min(_head_size(users, span), path.stat().st_size))
        except OSError as error:
            raise unreadable(path, str(error.strerror)) from error
        return _parse(path, raw, self.federation, span)

    def _save(self, rounds: NDArray[np.int64], entries: Entries, span: Span | None = None) -> None:
        span = span or Span.of(rounds)
        several = span.first < span.last
        head = (
            ROUND.pack(MAGIC, SEVERAL if several else ONE, len(entries), span.first, self.federation.encode())
            + entries.keys.astype("<u8").tobytes()
        )
        if several:
            head += rounds.astype("<i8").tobytes()
        head += (entries.ptr - entries.ptr[0]).astype("<i8").tobytes()
        write_file(self._path(span), sealed(head) + entries.data[entries.ptr[0] : entries.ptr[-1]].tobytes())

    def _hand_on(self, span: Span, new: PackedStore, until: int, forgotten: Keys) -> None:
        """Give a file to a branch: the file itself if all of it is wanted there."""
        keys, rounds, _ = self._head(span)
        wanted = (rounds <= until) & ~np.isin(keys, forgotten)
        if wanted.all():
            link_file(self._path(span), new._path(span))
        elif wanted.any():
            new._save(rounds[wanted], self._load(span)[1].at(np.flatnonzero(wanted)), span)

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(path, error) from error


def _head_size(users: int, span: Span) -> int:
    return ROUND.size + 8 * users * (2 if span.first < span.last else 1) + 8 * (users + 1) + CRC.size


def _parse(
    path: Path, raw: bytearray, federation: str, span: Span
) -> tuple[Keys, NDArray[np.int64], NDArray[np.int64]]:
    """A file's keys, their rounds and where their entries begin, once its head is known to be whole and ours."""
    several = span.first < span.last
    if not raw.startswith(struct.pack("<8sI", MAGIC, SEVERAL if several else ONE)) or len(raw) < ROUND.size:
        raise unreadable(path, "it is damaged, or of another version")
    _, _, users, number, owner = ROUND.unpack_from(raw)
    if not is_whole(raw[: _head_size(users, span)]) or number != span.first:
        raise unreadable(path, "its head is damaged or cut short")
    if owner.rstrip(b"\0") != federation.encode():
        raise foreign(path)
    keys = np.frombuffer(raw, "<u8", users, ROUND.size)
    rounds = np.frombuffer(raw, "<i8", users, ROUND.size + keys.nbytes) if several else np.full(users, span.first)
    after = ROUND.size + keys.nbytes * (2 if several else 1)
    return keys, rounds, np.frombuffer(raw, "<i8", users + 1, after)


def _new_folder(folder: Path | None) -> Path:
    if folder is None:
        raise ValueError("A log on disk can only branch into a folder; give one.")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty.", "A log branches into a new folder: remove it, or choose another.")
    return folder
