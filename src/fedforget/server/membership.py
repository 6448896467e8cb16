"""Membership: the users of a federation, those who were forgotten, and additions of users and items."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.randomness import UserId
from fedforget.runtime.table_seals import sealed

SCHEMA = """
CREATE TABLE IF NOT EXISTS member (user PRIMARY KEY, since INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS addition (number INTEGER PRIMARY KEY, since INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS suppressed (hash TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS erased (user PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
"""


class Membership:
    """The members in a history's database. Forgotten users are known by keyed hashes only."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def users(self) -> list[UserId]:
        """The users of the federation."""
        return [row[0] for row in self._db.execute("SELECT user FROM member")]

    def joined(self) -> dict[UserId, int]:
        """The members who were added later, with the round from which they may take part."""
        return dict(self._db.execute("SELECT user, since FROM member WHERE since > 1"))

    def enrol(self, users: Sequence[UserId]) -> None:
        """Set the members, unless there are some already."""
        if self._db.execute("SELECT 1 FROM member").fetchone() is None:
            with sealed(self._db, "member"):
                self._db.executemany("INSERT INTO member VALUES (?, 1)", [(user,) for user in users])

    def add(self, number: int, since: int, users: Sequence[UserId]) -> None:
        """Record an addition, and users who count from a round on; they are no longer suppressed.

        The caller holds a transaction.
        """
        hashes = [(self._hash(user),) for user in self.suppressed(users)]
        self._db.execute("INSERT INTO addition VALUES (?, ?)", (number, since))
        self._db.executemany("INSERT INTO member VALUES (?, ?)", [(user, since) for user in users])
        self._db.executemany("DELETE FROM suppressed WHERE hash = ?", hashes)

    def additions(self) -> int:
        """The number of the last addition; 0 if there is none."""
        return int(self._db.execute("SELECT COALESCE(MAX(number), 0) FROM addition").fetchone()[0])

    def suppressed(self, users: Sequence[UserId]) -> list[UserId]:
        """Those of these users who were forgotten and not readmitted."""
        hashes = {row[0] for row in self._db.execute("SELECT hash FROM suppressed")}
        return [user for user in users if self._hash(user) in hashes] if hashes else []

    def erased(self, users: Sequence[UserId]) -> list[int]:
        """The number of each user's last request to forget items that this history is without; 0 for none."""
        query = "SELECT COALESCE(MAX(number), 0) FROM erased WHERE user = ?"
        return [int(self._db.execute(query, (user,)).fetchone()[0]) for user in users]

    def set_erased(self, numbers: Mapping[UserId, int]) -> None:
        """Store that this history is without the items of these requests."""
        with sealed(self._db, "erased"):
            self._db.executemany("INSERT OR REPLACE INTO erased VALUES (?, ?)", list(numbers.items()))

    def copy_to(self, other: sqlite3.Connection, without: Iterable[UserId]) -> None:
        """Copy everything into an empty database, without some users, who are forgotten."""
        forgotten = set(without)
        for table in ("member", "erased"):
            rows = [row for row in self._db.execute(f"SELECT * FROM {table}") if row[0] not in forgotten]
            other.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        other.executemany("INSERT INTO addition VALUES (?, ?)", self._db.execute("SELECT * FROM addition"))
        other.executemany("INSERT INTO suppressed VALUES (?)", self._db.execute("SELECT * FROM suppressed"))
        hashes = [(self._hash(user),) for user in forgotten]
        other.executemany("INSERT OR IGNORE INTO suppressed VALUES (?)", hashes)

    def _hash(self, user: UserId) -> str:
        """The keyed hash of a user id. The key is this run's own."""
        return pseudonym(user, self._hash_key)

    @cached_property
    def _hash_key(self) -> str:
        return str(self._db.execute("SELECT value FROM meta WHERE name = 'hash_key'").fetchone()[0])
