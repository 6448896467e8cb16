"""PackedStore: the logs of many simulated users, in one file per round (or replay step) and one mapped file.

rounds/NNNNNN.log           never changed, only replaced; little endian
    magic 8s "fedround", format u4 (1), users u4, round u8, federation 32s (its id, padded with zeros)
    keys u8[users], ptr u8[users + 1], crc u4 (CRC-32 of everything before it), zero u4
    the entries; that of user i is the bytes ptr[i] to ptr[i + 1] from here
rounds/NNNNNN-NNNNNN.log    the same for rounds that were replayed together: format 2, rounds u8[users] after the keys
private.bin                 exact private parameters, changed in place (``device.log.private``)
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState
from fedforget.device.log.disk import CRC, foreign, is_whole, new_folder, sealed, unreadable
from fedforget.device.log.entries import NOTHING, Candidates, Entries, Keys, check, find, first_of_each, joined, latest
from fedforget.device.log.private import PrivateFile
from fedforget.errors import RunError
from fedforget.models.parameters import Array
from fedforget.runtime.files import cannot_write, link_file, make_folder, write_file
from fedforget.runtime.randomness import Rounds

ROUND = struct.Struct("<8sIIQ32s")
MAGIC = b"fedround"


class Span(NamedTuple):
    """The first and last round of a file. It has no entries of other rounds."""

    first: int
    last: int

    @property
    def several(self) -> bool:
        """Whether the file is for more than one round."""
        return self.first < self.last

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.first:06d}-{self.last:06d}.log" if self.several else f"{self.first:06d}.log"

    @property
    def format(self) -> int:
        """The number of the file's format."""
        return 2 if self.several else 1

    @classmethod
    def of(cls, rounds: NDArray[np.int64]) -> Span:
        """The span of some rounds."""
        return cls(int(rounds.min()), int(rounds.max()))

    @classmethod
    def named(cls, name: str) -> Span | None:
        """The span of a file with this name; None for other files."""
        parts = name.removesuffix(".log").split("-")
        if not name.endswith(".log") or not all(part.isdecimal() for part in parts) or len(parts) > 2:
            return None
        return cls(int(parts[0]), int(parts[-1]))

    def overlaps(self, other: Span) -> bool:
        """Whether the spans have a round in common."""
        return self.first <= other.last and other.first <= self.last


class PackedStore:
    """A store of files that are shared by all users.

    In memory are the entries of the file read last, and a sorted index of 16 bytes per user.
    """

    def __init__(self, folder: Path, federation: str) -> None:
        if len(federation.encode()) > 32:
            raise ValueError(f"A federation's id has at most 32 characters, not {federation!r}.")
        self.folder = folder
        self.federation = federation
        self._rounds = folder / "rounds"
        self._private = PrivateFile(folder / "private.bin", federation)
        self._last: tuple[tuple[Span, int, int], NDArray[np.int64], Entries] | None = None
        self._end: int | None = None  # the last round of any file, once it was looked up

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        rounds = check(rounds, entries, private)
        if not len(entries):
            return
        make_folder(self._rounds)
        last = latest(rounds, entries.keys)
        undo = self._private.put(entries.keys[last], rounds[last], private[last], keep_before=True)
        try:
            self._add(rounds, entries)
        except RunError:
            undo()
            raise

    def read(self, round_: int, keys: Keys) -> Entries:
        span = Span(round_, round_)
        if not self._path(span).exists():
            overlapping = [other for other in self._spans() if other.overlaps(span)]
            if not overlapping:
                return NOTHING
            (span,) = overlapping
        rounds, entries = self._load(span)
        places = np.flatnonzero(rounds == round_)
        return entries.at(places[find(entries.keys[places], keys)[1]])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        def candidates(span: Span) -> Candidates:
            users, rounds, _ = self._head(span)
            before = np.flatnonzero(rounds <= until)
            last = before[latest(rounds[before], users[before])]
            return users[last], rounds[last], lambda places: self._load(span)[1].at(last[places])

        return first_of_each(keys, map(candidates, reversed(self._spans())))

    def private_state(self, until: int) -> PrivateState:
        return self._private.private_state(until)

    def set_private_state(self, exact: PrivateState) -> None:
        if exact.keys.size:
            make_folder(self._rounds)
            self._private.put(exact.keys, exact.rounds, exact.rows, keep_before=False)

    def roll_back(self, round_: int) -> None:
        """Remove later rounds, and files that a crash left half written.

        The newest files are removed first, so that a crash leaves no gap.
        """
        self._end = None
        for span in reversed(self._spans()):
            if span.last > round_:
                rounds = self._head(span)[1] if span.first <= round_ else np.empty(0, np.int64)
                self._keep(span, rounds <= round_)
        self._unlink([*self.folder.glob(".*.part"), *self._rounds.glob(".*.part")])
        self._private.roll_back(round_)

    def drop(self, round_: int, keys: Keys) -> None:
        for span in self._spans():
            if span.first <= round_ <= span.last:
                users, rounds, _ = self._head(span)
                self._keep(span, ~((rounds == round_) & np.isin(users, keys)))

    def branch(self, folder: Path | None, until: int, without: Keys) -> PackedStore:
        """A new store in a new folder.

        Files with nothing to leave out are hard links, where the disk supports them: stores never change a file.
        """
        new = PackedStore(new_folder(folder), self.federation)
        make_folder(new._rounds)
        for span in self._spans():
            if span.first <= until:
                users, rounds, _ = self._head(span)
                keep = (rounds <= until) & ~np.isin(users, without)
                if keep.all():
                    link_file(self._path(span), new._path(span))
                elif keep.any():
                    new._save(rounds[keep], self._load(span)[1].at(keep), span)
        new.set_private_state(self.private_state(until).without(without))
        return new

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        for span in self._spans():
            keys, rounds, ptr = self._head(span)
            for round_ in np.unique(rounds).tolist():
                yield round_, keys[rounds == round_], np.diff(ptr)[rounds == round_]

    def last_round(self) -> int:
        for span in reversed(self._spans()):
            return int(self._head(span)[1].max()) if span.several else span.last
        return 0

    def close(self) -> None:
        self._private.close()
        self._last = self._end = None

    def _path(self, span: Span) -> Path:
        return self._rounds / span.name

    def missing(self, rounds: Iterable[int]) -> list[int]:
        """Those of these rounds that no file has."""
        spans = self._spans()
        ends = [span.last for span in spans]
        found = ((round_, bisect_left(ends, round_)) for round_ in rounds)
        return [round_ for round_, at in found if at == len(spans) or spans[at].first > round_]

    def _spans(self) -> list[Span]:
        """The spans of all files, in order. They are listed each time, since another process may have added some."""
        try:
            with os.scandir(self._rounds) as files:
                spans = [span for file in files if (span := Span.named(file.name)) is not None]
        except FileNotFoundError:
            return []
        found: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.first, -span.last)):
            # A kill may leave a file whose rounds are in a larger one too: the larger one counts.
            if not found or span.last > found[-1].last:
                found.append(span)
        return found

    def _add(self, rounds: NDArray[np.int64], entries: Entries) -> None:
        """Write entries to a file, together with those of files that overlap with it."""
        span = Span.of(rounds)
        overlapping: list[Span] = []
        if self._end is None or span.first <= self._end:
            spans = self._spans()
            overlapping = [other for other in spans if other.overlaps(span)]
            self._end = max((other.last for other in spans), default=0)
        for other in overlapping:
            old_rounds, old = self._load(other)
            new_pairs = set(zip(rounds.tolist(), entries.keys.tolist(), strict=True))
            old_pairs = zip(old_rounds.tolist(), old.keys.tolist(), strict=True)
            keep = np.array([pair not in new_pairs for pair in old_pairs], bool)
            rounds, entries = np.concatenate([old_rounds[keep], rounds]), joined([old.at(keep), entries])
        self._save(rounds, entries, Span.of(rounds))
        self._end = max(self._end, span.last)
        self._unlink([self._path(other) for other in overlapping if other != Span.of(rounds)])

    def _keep(self, span: Span, keep: NDArray[np.bool_]) -> None:
        """Keep some entries of a file, under the same name; without any, remove it."""
        if keep.all() and keep.size:
            return
        if keep.any():
            rounds, entries = self._load(span)
            self._save(rounds[keep], entries.at(keep), span)
        else:
            self._unlink([self._path(span)])

    def _load(self, span: Span) -> tuple[NDArray[np.int64], Entries]:
        """The rounds and entries of a file. If the file was cut short, entries are too, and fail their checksums."""
        path = self._path(span)
        try:
            now = path.stat()
            seen = (span, now.st_ino, now.st_mtime_ns)
            if self._last is not None and self._last[0] == seen:
                return self._last[1], self._last[2]
            raw = bytearray(path.read_bytes())
        except OSError as error:
            raise unreadable(path, error) from error
        keys, rounds, ptr = self._parse(span, raw)
        data = np.frombuffer(raw, np.uint8, offset=_head_size(keys.size, span))
        entries = Entries(keys, np.minimum(ptr, data.size), data)
        self._last = seen, rounds, entries
        return rounds, entries

    def _head(self, span: Span) -> tuple[Keys, NDArray[np.int64], NDArray[np.int64]]:
        """A file's keys, their rounds and the offsets of their entries, without reading the entries."""
        path = self._path(span)
        try:
            with path.open("rb", buffering=0) as file:
                raw = bytearray(file.read(ROUND.size))
                users = ROUND.unpack(raw)[2] if len(raw) == ROUND.size else 0
                raw += file.read(min(_head_size(users, span), path.stat().st_size))
        except OSError as error:
            raise unreadable(path, error) from error
        return self._parse(span, raw)

    def _parse(self, span: Span, raw: bytearray) -> tuple[Keys, NDArray[np.int64], NDArray[np.int64]]:
        """Check a file's head; its keys, their rounds and the offsets of their entries."""
        path = self._path(span)
        if len(raw) < ROUND.size or ROUND.unpack_from(raw)[:2] != (MAGIC, span.format):
            raise unreadable(path, "it is damaged, or of another version")
        _, _, users, number, owner = ROUND.unpack_from(raw)
        if not is_whole(raw[: _head_size(users, span)]) or number != span.first:
            raise unreadable(path, "its head is damaged or cut short")
        if owner.rstrip(b"\0") != self.federation.encode():
            raise foreign(path)
        keys = np.frombuffer(raw, "<u8", users, ROUND.size)
        after = ROUND.size + keys.nbytes
        if not span.several:
            return keys, np.full(users, span.first), np.frombuffer(raw, "<i8", users + 1, after)
        rounds = np.frombuffer(raw, "<i8", users, after)
        return keys, rounds, np.frombuffer(raw, "<i8", users + 1, after + rounds.nbytes)

    def _save(self, rounds: NDArray[np.int64], entries: Entries, span: Span) -> None:
        head = [
            ROUND.pack(MAGIC, span.format, len(entries), span.first, self.federation.encode()),
            entries.keys.astype("<u8").tobytes(),
            rounds.astype("<i8").tobytes() if span.several else b"",
            (entries.ptr - entries.ptr[0]).astype("<i8").tobytes(),
        ]
        body = entries.data[entries.ptr[0] : entries.ptr[-1]].tobytes()
        write_file(self._path(span), sealed(b"".join(head)) + body)

    def _unlink(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(path, error) from error


def _head_size(users: int, span: Span) -> int:
    return ROUND.size + 8 * users * (2 if span.several else 1) + 8 * (users + 1) + CRC.size
