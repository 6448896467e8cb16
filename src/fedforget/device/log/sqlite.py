"""SqliteStore: for real devices, one SQLite file per user, named by the 16 hexadecimal digits of its key.

meta(name TEXT PRIMARY KEY, value)             format, federation (the id of the run it belongs to)
entry(round INTEGER PRIMARY KEY, body BLOB)
private(round INTEGER PRIMARY KEY, row BLOB, crc INTEGER)
    the two newest rounds; float32, little endian; crc is CRC-32 of key, round (8 bytes each) and row

A user whose file is damaged is left out with a warning that names it, and the others go on. A row that its crc does not
confirm is not used.
"""

from __future__ import annotations

import sqlite3
import struct
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.database import open_database, scrub
from fedforget.device.log.contract import Exact, others, stacked
from fedforget.device.log.entries import Entries, Keys, check
from fedforget.errors import RunError, RunWarning
from fedforget.files import cannot_write, make_folder
from fedforget.models.parameters import Array

FORMAT = "1"
OPEN_FILES = 64
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry (round INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE private (round INTEGER PRIMARY KEY, row BLOB NOT NULL, crc INTEGER NOT NULL);
"""
PUT_ENTRY = "INSERT OR REPLACE INTO entry VALUES (?, ?)"
PUT_PRIVATE = "INSERT OR REPLACE INTO private VALUES (?, ?, ?)"
KEEP_TWO = "DELETE FROM private WHERE round NOT IN (SELECT round FROM private ORDER BY round DESC LIMIT 2)"

Row = tuple[Any, ...]
Statement = tuple[str, Row]


class _DamagedError(RunError):
    """A user's file that cannot be used, unlike one of another run, which is never passed over."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"The log {path} is damaged: {reason}.", "Put back a copy of it, or delete it: its user starts a new one."
        )


class SqliteStore:
    """Opens a user's file when it is asked for, and keeps the last few open."""

    def __init__(self, folder: Path, federation: str) -> None:
        self.folder = folder
        self.federation = federation
        self._meta = {"format": FORMAT, "federation": federation}
        self._open: OrderedDict[int, sqlite3.Connection] = OrderedDict()

    def append(self, round_: int, entries: Entries, private: Array) -> None:
        """Add a round's entries, and what each user's private parameters are after it.

        Each user's file changes in one transaction; when one cannot, those before it are put back as they were.
        """
        check(entries, private)
        done: list[tuple[int, list[Statement]]] = []
        try:
            for key, body, row in zip(entries.keys.tolist(), entries, private, strict=True):
                undo = self._undoing(key, round_)
                self._change(key, [(PUT_ENTRY, (round_, body)), _put_private(key, round_, row), (KEEP_TWO, ())])
                done.append((key, undo))
        except RunError:
            for key, undo in done:
                with suppress(RunError):
                    self._change(key, undo, scrubbed=True)
            raise

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of those of these users who have one for the round, in the order asked."""
        found = [
            (key, body)
            for key in keys.tolist()
            for (body,) in self._ask(key, "SELECT body FROM entry WHERE round = ?", round_)
        ]
        return Entries.of(np.array([key for key, _ in found], np.uint64), [body for _, body in found])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry up to a round of those of these users who have one, and the round of each."""
        query = "SELECT round, body FROM entry WHERE round <= ? ORDER BY round DESC LIMIT 1"
        found = [(key, *line) for key in keys.tolist() for line in self._ask(key, query, until)]
        entries = Entries.of(np.array([key for key, _, _ in found], np.uint64), [body for _, _, body in found])
        return entries, np.array([round_ for _, round_, _ in found], np.int64)

    def exact(self, until: int) -> Exact:
        """Of every user of whom it is known: the private parameters after the last round up to this one."""
        query = "SELECT round, row, crc FROM private WHERE round <= ? ORDER BY round DESC"
        found = []
        for key in self._users():
            whole = (line for line in self._ask(key, query, until) if _crc(key, line[0], line[1]) == line[2])
            for round_, row, _ in list(whole)[:1]:
                found.append((key, round_, np.frombuffer(row, "<f4").astype(np.float32)))
        return stacked(found)

    def set_exact(self, exact: Exact) -> None:
        """Let these be the private parameters of these users; nothing is known of what they were before."""
        for key, round_, row in zip(exact.keys.tolist(), exact.rounds.tolist(), exact.rows, strict=True):
            self._change(key, [("DELETE FROM private", ()), _put_private(key, round_, row)], scrubbed=True)

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round, and exact private parameters of later rounds."""
        for key in self._users():
            self._delete(key, [(f"DELETE FROM {table} WHERE round > ?", (round_,)) for table in ("entry", "private")])

    def drop(self, round_: int, keys: Keys) -> None:
        """Drop the entries of some users for one round."""
        for key in keys.tolist():
            self._delete(key, [("DELETE FROM entry WHERE round = ?", (round_,))])

    def branch(self, folder: Path | None, until: int, without: Keys) -> SqliteStore:
        """A new store in a new folder that begins as this one up to a round, with no trace of some users."""
        if folder is None:
            raise ValueError("A log on disk can only branch into a folder; give one.")
        if folder.exists() and any(folder.iterdir()):
            raise RunError(f"{folder} is not empty.", "A log branches into a new folder: remove it, or choose another.")
        new = SqliteStore(folder, self.federation)
        leavers = set(without.tolist())
        for key in self._users():
            lines = [] if key in leavers else self._ask(key, "SELECT * FROM entry WHERE round <= ?", until)
            if lines:
                new._change(key, [(PUT_ENTRY, line) for line in lines])
        new.set_exact(others(self.exact(until), without))
        return new

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For every round with entries, the oldest first: whose they are, and how many bytes each has."""
        rounds: dict[int, list[tuple[int, int]]] = {}
        for key in self._users():
            for round_, size in self._ask(key, "SELECT round, LENGTH(body) FROM entry"):
                rounds.setdefault(round_, []).append((key, size))
        for round_, lines in sorted(rounds.items()):
            keys, sizes = zip(*lines, strict=True)
            yield round_, np.array(keys, np.uint64), np.array(sizes, np.int64)

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        newest = (self._ask(key, "SELECT COALESCE(MAX(round), 0) FROM entry") for key in self._users())
        return max((round_ for lines in newest for (round_,) in lines), default=0)

    def close(self) -> None:
        """Let go of every file."""
        while self._open:
            self._open.popitem()[1].close()

    def _path(self, key: int) -> Path:
        return self.folder / f"{key:016x}.sqlite"

    def _users(self) -> list[int]:
        """The keys of the users with a file, in order."""
        names = [path.stem for path in self.folder.glob("*.sqlite")]
        return sorted(int(name, 16) for name in names if len(name) == 16 and set(name) <= set("0123456789abcdef"))

    def _ask(self, key: int, query: str, *values: int) -> list[Row]:
        """What a user's file answers; nothing if there is no file, or, with a warning, if it is damaged."""
        try:
            return self._query(key, query, *values)
        except _DamagedError as error:
            _warn(error)
            return []

    def _query(self, key: int, query: str, *values: int) -> list[Row]:
        path = self._path(key)
        if not path.exists():
            return []
        try:
            return self._database(key).execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _DamagedError(path, error) from error

    def _change(self, key: int, statements: list[Statement], scrubbed: bool = False) -> None:
        """Change a user's file in one transaction, and make it first if need be."""
        if not self._path(key).exists():
            self._create(self._path(key))
        db = self._database(key)
        try:
            with db:
                changed = sum(db.execute(*statement).rowcount for statement in statements)
            if scrubbed and changed:
                scrub(db)
        except sqlite3.OperationalError as error:
            raise cannot_write(self._path(key), error) from error
        except sqlite3.Error as error:
            raise _DamagedError(self._path(key), error) from error

    def _delete(self, key: int, statements: list[Statement]) -> None:
        """Delete from a user's file, if there is one, and from the disk; a damaged file is passed over."""
        if self._path(key).exists():
            try:
                self._change(key, statements, scrubbed=True)
            except _DamagedError as error:
                _warn(error)

    def _undoing(self, key: int, round_: int) -> list[Statement]:
        """What puts a user's file back as it is now, once a round has been added to it."""
        entry = self._query(key, "SELECT * FROM entry WHERE round = ?", round_)
        private = self._query(key, "SELECT * FROM private")
        return [
            ("DELETE FROM entry WHERE round = ?", (round_,)),
            ("DELETE FROM private", ()),
            *((PUT_ENTRY, line) for line in entry),
            *((PUT_PRIVATE, line) for line in private),
        ]

    def _database(self, key: int) -> sqlite3.Connection:
        """A user's file, open and known to be ours. Of many, the one not used for longest is closed."""
        if key not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[key] = self._opened(self._path(key))
        self._open.move_to_end(key)
        return self._open[key]

    def _opened(self, path: Path) -> sqlite3.Connection:
        """An existing file, refused if it is damaged or of another run."""
        if not path.stat().st_size:
            raise _DamagedError(path, "it is empty")
        try:
            db = open_database(path, "")
        except RunError as error:
            raise _DamagedError(path, error.problem.rstrip(".")) from error
        try:
            self._check_meta(path, dict(db.execute("SELECT name, value FROM meta")))
        except (sqlite3.Error, RunError) as error:
            db.close()
            raise (error if isinstance(error, RunError) else _DamagedError(path, error)) from error
        return db

    def _check_meta(self, path: Path, meta: dict[str, str]) -> None:
        if meta.get("format") != FORMAT:
            raise _DamagedError(path, f"its format is {meta.get('format')}, not {FORMAT}")
        if meta != self._meta:
            raise RunError(f"{path} is a log of another run.", "Put back this run's own file, or delete it.")

    def _create(self, path: Path) -> None:
        """Make a file that says which run it is of, beside and renamed: one that does not say so is damaged."""
        make_folder(self.folder)
        part = path.with_name(f".{path.name}.part")
        try:
            for stale in (part, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
                stale.unlink(missing_ok=True)
            db = open_database(part, SCHEMA)
            with db:
                db.executemany("INSERT INTO meta VALUES (?, ?)", self._meta.items())
            db.close()
            part.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise cannot_write(path, error) from error


def _warn(error: RunError) -> None:
    warnings.warn(f"{error.problem} It is left out. {error.hint}", RunWarning, stacklevel=4)


def _put_private(key: int, round_: int, row: Array) -> Statement:
    raw = row.astype("<f4").tobytes()
    return PUT_PRIVATE, (round_, raw, _crc(key, round_, raw))


def _crc(key: int, round_: int, row: bytes) -> int:
    return zlib.crc32(row, zlib.crc32(struct.pack("<QQ", key, round_)))
