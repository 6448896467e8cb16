"""SqliteStore: for real devices, one SQLite file per user (``user_files``).

A store is about one trajectory; a device on a network has a second one in the same files while users are being
forgotten. A row of private parameters that its crc does not confirm is not used.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState, others, stacked
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
    """Opens a user's file when it is asked for, and keeps the last few open.

    ``only`` are the users that it is about, of those who have a file in the folder; all of them by default. ``files``
    may be passed in by someone who has them open already.
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
        """Add entries, and what each user's private parameters are after the last of its rounds.

        Each user's file changes in one transaction; when one cannot, those before it are put back as they were.
        """
        rounds = check(rounds, entries, private)
        own: dict[int, dict[int, bytes]] = {}
        for key, round_, body in zip(entries.keys.tolist(), rounds.tolist(), entries, strict=True):
            own.setdefault(key, {})[round_] = body
        done: list[tuple[int, list[Statement]]] = []
        try:
            for place in latest(rounds, entries.keys).tolist():
                key = int(entries.keys[place])
                undo = self._undoing(key, list(own[key]))
                put = [(PUT_ENTRY, (self.trajectory, round_, body)) for round_, body in own[key].items()]
                put.append(self._put_private(key, int(rounds[place]), private[place]))
                self.files.change(key, [*put, (KEEP_TWO, (self.trajectory,))])
                done.append((key, undo))
        except RunError:
            for key, undo in done:
                with suppress(RunError):
                    self.files.change(key, undo, scrubbed=True)
            raise

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of those of these users who have one for the round, in the order asked."""
        found = [
            (key, body)
            for key in keys.tolist()
            for (body,) in self._ask(key, "SELECT body FROM entry WHERE trajectory = ? AND round = ?", round_)
        ]
        return Entries.of(np.array([key for key, _ in found], np.uint64), [body for _, body in found])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry up to a round of those of these users who have one, and the round of each."""
        query = "SELECT round, body FROM entry WHERE trajectory = ? AND round <= ? ORDER BY round DESC LIMIT 1"
        found = [(key, *line) for key in keys.tolist() for line in self._ask(key, query, until)]
        entries = Entries.of(np.array([key for key, _, _ in found], np.uint64), [body for _, _, body in found])
        return entries, np.array([round_ for _, round_, _ in found], np.int64)

    def private_state(self, until: int) -> PrivateState:
        """Of every user of whom it is known: the private parameters after the last round up to this one."""
        query = "SELECT round, row, crc FROM private WHERE trajectory = ? AND round <= ? ORDER BY round DESC"
        found = []
        for key in self._users():
            whole = (line for line in self._ask(key, query, until) if _crc(key, line[0], line[1]) == line[2])
            for round_, row, _ in list(whole)[:1]:
                found.append((key, round_, np.frombuffer(row, "<f4").astype(np.float32)))
        return stacked(found)

    def set_private_state(self, exact: PrivateState) -> None:
        """Let these be the private parameters of these users; nothing is known of what they were before."""
        for key, round_, row in zip(exact.keys.tolist(), exact.rounds.tolist(), exact.rows, strict=True):
            nothing = ("DELETE FROM private WHERE trajectory = ?", (self.trajectory,))
            self.files.change(key, [nothing, self._put_private(key, round_, row)], scrubbed=True)

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round, and exact private parameters of later rounds."""
        later = (self.trajectory, round_)
        for key in self._users():
            self.files.delete(
                key, [(f"DELETE FROM {table} WHERE trajectory = ? AND round > ?", later) for table in TABLES]
            )

    def drop(self, round_: int, keys: Keys) -> None:
        """Drop the entries of some users for one round."""
        for key in keys.tolist():
            self.files.delete(
                key, [("DELETE FROM entry WHERE trajectory = ? AND round = ?", (self.trajectory, round_))]
            )

    def branch(self, folder: Path | None, until: int, without: Keys) -> SqliteStore:
        """A new store in a new folder that begins as this one up to a round, with no trace of some users."""
        if folder is None:
            raise ValueError("A log on disk can only branch into a folder; give one.")
        if folder.exists() and any(folder.iterdir()):
            raise RunError(f"{folder} is not empty.", "A log branches into a new folder: remove it, or choose another.")
        new = SqliteStore(folder, self.files.federation)
        forgotten = set(without.tolist())
        for key in self._users():
            lines = [] if key in forgotten else self._ask(key, f"{ENTRIES} AND round <= ?", until)
            if lines:
                new.files.change(key, [(PUT_ENTRY, (new.trajectory, *line)) for line in lines])
        new.set_private_state(others(self.private_state(until), without))
        return new

    def begin_as(self, other: SqliteStore, until: int) -> None:
        """Let these users' trajectory in the same files begin as another one up to a round."""
        exact = other.private_state(until)
        copy = "INSERT INTO {0} SELECT ?, round, body FROM {0} WHERE trajectory = ? AND round <= ?"
        here = (self.trajectory, other.trajectory, until)
        for key in self._users():
            self.forget(key)
            self.files.change(key, [(copy.format(table), here) for table in ("entry", "pending")])
        self.set_private_state(exact)

    def forget(self, key: int) -> None:
        """Give up a user's trajectory."""
        gone = [(f"DELETE FROM {table} WHERE trajectory = ?", (self.trajectory,)) for table in (*TABLES, "pending")]
        self.files.delete(key, gone)

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For every round with entries, the oldest first: whose they are, and how many bytes each has."""
        rounds: dict[int, list[tuple[int, int]]] = {}
        for key in self._users():
            for round_, size in self._ask(key, "SELECT round, LENGTH(body) FROM entry WHERE trajectory = ?"):
                rounds.setdefault(round_, []).append((key, size))
        for round_, lines in sorted(rounds.items()):
            keys, sizes = zip(*lines, strict=True)
            yield round_, np.array(keys, np.uint64), np.array(sizes, np.int64)

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        query = "SELECT COALESCE(MAX(round), 0) FROM entry WHERE trajectory = ?"
        newest = (self._ask(key, query) for key in self._users())
        return max((round_ for lines in newest for (round_,) in lines), default=0)

    def close(self) -> None:
        """Let go of every file."""
        self.files.close()

    def _users(self) -> list[int]:
        """The keys of the users with a file, in order."""
        return [key for key in self.files.users() if self._only is None or key in self._only]

    def _ask(self, key: int, query: str, *values: int) -> list[Row]:
        """What a user's file answers to a query whose first value is the trajectory."""
        return self.files.ask(key, query, self.trajectory, *values)

    def _undoing(self, key: int, rounds: list[int]) -> list[Statement]:
        """What puts a user's file back as it is now, once these rounds have been added to it."""
        these = "round IN (SELECT value FROM json_each(?))"
        added = (self.trajectory, json.dumps(rounds))
        entry = self.files.query(key, f"{ENTRIES} AND {these}", *added)
        private = self.files.query(key, "SELECT round, row, crc FROM private WHERE trajectory = ?", self.trajectory)
        return [
            (f"DELETE FROM entry WHERE trajectory = ? AND {these}", added),
            ("DELETE FROM private WHERE trajectory = ?", (self.trajectory,)),
            *((PUT_ENTRY, (self.trajectory, *line)) for line in entry),
            *((PUT_PRIVATE, (self.trajectory, *line)) for line in private),
        ]

    def _put_private(self, key: int, round_: int, row: Array) -> Statement:
        raw = row.astype("<f4").tobytes()
        return PUT_PRIVATE, (self.trajectory, round_, raw, _crc(key, round_, raw))


def _crc(key: int, round_: int, row: bytes) -> int:
    return zlib.crc32(row, zlib.crc32(struct.pack("<QQ", key, round_)))
