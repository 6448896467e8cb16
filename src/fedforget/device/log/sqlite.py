"""SqliteLog: private parameters in one SQLite file.

entry(user, round INTEGER, private BLOB)      float32, little endian; primary key (user, round)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedforget.database import open_database, scrub
from fedforget.files import cannot_write, make_folder
from fedforget.models.parameters import Array
from fedforget.randomness import UserId

SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    user NOT NULL, round INTEGER NOT NULL, private BLOB NOT NULL, PRIMARY KEY (user, round)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entry_round ON entry (round);
"""


class SqliteLog:
    """Keeps entries in a file; each round is one transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_folder(path.parent)
        self._db = open_database(path, SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def append(self, round_: int, users: Sequence[UserId], private: Array) -> None:
        """Store what these users' private parameters are after a round, replacing an entry for the same round."""
        rows = [(user, round_, row.tobytes()) for user, row in zip(users, private.astype("<f4"), strict=True)]
        try:
            with self._db:
                self._db.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise cannot_write(self.path, error) from error

    def latest(self, until: int | None = None) -> dict[UserId, Array]:
        """The newest private parameters, up to a round if one is given, of every user that has an entry."""
        query = "SELECT user, MAX(round), private FROM entry WHERE round <= COALESCE(?, round) GROUP BY user"
        rows = self._db.execute(query, (until,))
        return {user: np.frombuffer(private, "<f4").astype(np.float32) for user, _, private in rows}

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round."""
        try:
            with self._db:
                self._db.execute("DELETE FROM entry WHERE round > ?", (round_,))
            scrub(self._db)
        except sqlite3.Error as error:
            raise cannot_write(self.path, error) from error

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return int(self._db.execute("SELECT COALESCE(MAX(round), 0) FROM entry").fetchone()[0])
