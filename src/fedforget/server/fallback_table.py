"""FallbackTable: what was damaged or missing in the files of a run and what was used instead, in its history.

fallback(file TEXT, text TEXT, round INTEGER, users INTEGER, PRIMARY KEY (file, text))
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fedforget.runtime.fallbacks import Fallback
from fedforget.runtime.table_seals import sealed

SCHEMA = """
CREATE TABLE IF NOT EXISTS fallback (
    file TEXT NOT NULL, text TEXT NOT NULL, round INTEGER NOT NULL, users INTEGER NOT NULL, PRIMARY KEY (file, text)
) WITHOUT ROWID;
"""
PUT = """INSERT INTO fallback (file, text, round, users) VALUES (?, ?, ?, ?)
ON CONFLICT (file, text) DO UPDATE SET users = MAX(users, excluded.users)"""


class FallbackTable:
    """The fallbacks in a history's database. They hold numbers of users, not users."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, fallbacks: Sequence[Fallback]) -> None:
        """Add fallbacks; of one that is known already only the number of users may grow."""
        with sealed(self._db, "fallback"):
            self._db.executemany(PUT, [(each.file, each.text, each.round, each.users) for each in fallbacks])

    def all(self) -> list[Fallback]:
        """All fallbacks in the order of their rounds; none in a history of an earlier version that is only read."""
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'fallback'").fetchone() is None:
            return []
        query = "SELECT round, file, text, users FROM fallback ORDER BY round, file, text"
        return [Fallback(*row) for row in self._db.execute(query)]

    def copy_to(self, other: sqlite3.Connection) -> None:
        """Copy everything into an empty database."""
        other.executemany("INSERT INTO fallback VALUES (?, ?, ?, ?)", self._db.execute("SELECT * FROM fallback"))
