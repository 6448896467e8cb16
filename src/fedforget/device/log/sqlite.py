"""SqliteStore: the logs of real devices, in one SQLite file per user (``user_files``).

A store is for one trajectory. While users are being forgotten, a device on a network has a second one in the same
files. Private parameters whose crc does not match are not used.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState
from fedforget.device.log.disk import new_folder
from fedforget.device.log.entries import Entries, Keys, check, latest
from fedforget.device.log.user_files import Row, Statement, UserFiles
from fedforget.errors import RunError
from fedforget.models.parameters import Array
from fedforget.protocol.order import ORIGIN
from fedforget.runtime.randomness import Rounds

PUT_ENTRY = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)"
PUT_PRIVATE = "INSERT OR REPLACE INTO private VALUES (?, ?, ?, ?)"
KEEP_TWO = """DELETE FROM private WHERE trajectory = ?1
AND round NOT IN (SELECT round FROM private WHERE trajectory = ?1 ORDER BY round DESC LIMIT 2)"""
ENTRIES = "SELECT round, body FROM entry WHERE trajectory = ?"
TABLES = ("entry", "private")


class SqliteStore:
    """A store with one file per user, opened when needed.

    It is for the users ``only`` among those with a file in the folder; all of them by default. ``files`` are the open
    files to use, if there are any.
    """

    def __init__(
        self,
        folder: Path,
        federation: str,
        trajectory: str = ORIGIN[0][0],
        only: Collection[int] | None = None,
        files: UserFiles | None = None,
    ) -> None:
        self.files = UserFiles(folder, federation) if files is None else files
        self.folder = self.files.folder
        self.trajectory = trajectory
        self._only = only

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Add entries and private parameters.

        Each user's file changes in one transaction. If one fails, the changes of the files before it are undone.
        """
        rounds = check(rounds, entries, private)
        bodies: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        for key, round_, body in zip(entries.keys.tolist(), rounds.tolist(), entries, strict=True):
            bodies[key][round_] = body
        done: list[tuple[int, list[Statement]]] = []
        try:
            for place in latest(rounds, entries.keys).tolist():
                key = int(entries.keys[place])
                undo = self._undo_statements(key, list(bodies[key]))
                put = [(PUT_ENTRY, (self.trajectory, round_, body)) for round_, body in bodies[key].items()]
                put.append(self._put_private(key, int(rounds[place]), private[place]))
                self.files.change(key, [*put, (KEEP_TWO, (self.trajectory,))])
                done.append((key, undo))
        except RunError:
            for key, undo in done:
                with suppress(RunError):
                    self.files.change(key, undo, scrubbed=True)
            raise

    def read(self, round_: int, keys: Keys) -> Entries:
        return self._select(keys, f"{ENTRIES} AND round = ?", round_)[0]

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        return self._select(keys, f"{ENTRIES} AND round <= ? ORDER BY round DESC LIMIT 1", until)

    def private_state(self, until: int) -> PrivateState:
        query = "SELECT round, row, crc FROM private WHERE trajectory = ? AND round <= ? ORDER BY round DESC"
        found, damaged = [], []
        for key in self._users():
            lines = self._ask(key, query, until)
            valid = [line for line in lines if _crc(key, line[0], line[1]) == line[2]]
            damaged += [key] if len(valid) < len(lines) else []
            for round_, row, _ in valid[:1]:
                found.append((key, round_, np.frombuffer(row, "<f4").astype(np.float32)))
        return replace(PrivateState.of(found), damaged=np.array(damaged, np.uint64), source=str(self.folder))

    def set_private_state(self, exact: PrivateState) -> None:
        for key, round_, row in zip(exact.keys.tolist(), exact.rounds.tolist(), exact.rows, strict=True):
            clear = ("DELETE FROM private WHERE trajectory = ?", (self.trajectory,))
            self.files.change(key, [clear, self._put_private(key, round_, row)], scrubbed=True)

    def roll_back(self, round_: int) -> None:
        later = (self.trajectory, round_)
        statements = [(f"DELETE FROM {table} WHERE trajectory = ? AND round > ?", later) for table in TABLES]
        for key in self._users():
            self.files.delete(key, statements)

    def drop(self, round_: int, keys: Keys) -> None:
        statement = ("DELETE FROM entry WHERE trajectory = ? AND round = ?", (self.trajectory, round_))
        for key in keys.tolist():
            self.files.delete(key, [statement])

    def branch(self, folder: Path | None, until: int, without: Keys) -> SqliteStore:
        new = SqliteStore(new_folder(folder), self.files.federation)
        forgotten = set(without.tolist())
        for key in self._users():
            lines = [] if key in forgotten else self._ask(key, f"{ENTRIES} AND round <= ?", until)
            if lines:
                new.files.change(key, [(PUT_ENTRY, (new.trajectory, *line)) for line in lines])
        new.set_private_state(self.private_state(until).without(without))
        return new

    def begin_as(self, other: SqliteStore, until: int) -> None:
        """Replace this trajectory by a copy of another one, in the same files, up to a round."""
        exact = other.private_state(until)
        clear = [f"DELETE FROM {table} WHERE trajectory = ?" for table in (*TABLES, "pending")]
        copy = "INSERT INTO {0} SELECT ?, round, body FROM {0} WHERE trajectory = ? AND round <= ?"
        source = (self.trajectory, other.trajectory, until)
        for key in self._users():
            self.files.delete(key, [(statement, (self.trajectory,)) for statement in clear])
            self.files.change(key, [(copy.format(table), source) for table in ("entry", "pending")])
        self.set_private_state(exact)

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        rounds: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for key in self._users():
            for round_, size in self._ask(key, "SELECT round, LENGTH(body) FROM entry WHERE trajectory = ?"):
                rounds[round_].append((key, size))
        for round_, lines in sorted(rounds.items()):
            keys, sizes = zip(*lines, strict=True)
            yield round_, np.array(keys, np.uint64), np.array(sizes, np.int64)

    def last_round(self) -> int:
        query = "SELECT COALESCE(MAX(round), 0) FROM entry WHERE trajectory = ?"
        newest = (self._ask(key, query) for key in self._users())
        return max((round_ for lines in newest for (round_,) in lines), default=0)

    def close(self) -> None:
        self.files.close()

    def _users(self) -> list[int]:
        """The keys of the users with a file, in order."""
        return [key for key in self.files.users() if self._only is None or key in self._only]

    def _ask(self, key: int, query: str, *values: int) -> list[Row]:
        """Query a user's file; the first value of the query is the trajectory."""
        return self.files.ask(key, query, self.trajectory, *values)

    def _select(self, keys: Keys, query: str, round_: int) -> tuple[Entries, NDArray[np.int64]]:
        """The entries that a query finds in these users' files, and their rounds."""
        found = [(key, *line) for key in keys.tolist() for line in self._ask(key, query, round_)]
        entries = Entries.of(np.array([key for key, _, _ in found], np.uint64), [body for _, _, body in found])
        return entries, np.array([number for _, number, _ in found], np.int64)

    def _undo_statements(self, key: int, rounds: list[int]) -> list[Statement]:
        """Statements that restore the current state of a user's file after these rounds were added to it."""
        in_rounds = "round IN (SELECT value FROM json_each(?))"
        added = (self.trajectory, json.dumps(rounds))
        entry = self.files.query(key, f"{ENTRIES} AND {in_rounds}", *added)
        private = self.files.query(key, "SELECT round, row, crc FROM private WHERE trajectory = ?", self.trajectory)
        return [
            (f"DELETE FROM entry WHERE trajectory = ? AND {in_rounds}", added),
            ("DELETE FROM private WHERE trajectory = ?", (self.trajectory,)),
            *((PUT_ENTRY, (self.trajectory, *line)) for line in entry),
            *((PUT_PRIVATE, (self.trajectory, *line)) for line in private),
        ]

    def _put_private(self, key: int, round_: int, row: Array) -> Statement:
        raw = row.astype("<f4").tobytes()
        return PUT_PRIVATE, (self.trajectory, round_, raw, _crc(key, round_, raw))


def _crc(key: int, round_: int, row: bytes) -> int:
    return zlib.crc32(row, zlib.crc32(struct.pack("<QQ", key, round_)))
