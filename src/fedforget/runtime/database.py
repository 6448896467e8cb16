"""SQLite as this package uses it: crash-safe, and with deleted content overwritten."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fedforget.errors import RunError


def open_database(path: Path | None, schema: str) -> sqlite3.Connection:
    """Open or create a database (in memory when there is no path) whose tables the schema creates if needed.

    The write-ahead log keeps it whole through a crash at any point; ``secure_delete`` overwrites what is deleted.
    Until ``scrub`` the write-ahead log may still hold it.
    """
    name = ":memory:" if path is None else str(path)
    try:
        db = sqlite3.connect(name, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        db.executescript(schema)
    except sqlite3.Error as error:
        raise RunError(
            f"Cannot open {name}: {error}.", "Is the folder writable, and is this a file of fedforget?"
        ) from error
    return db


def scrub(db: sqlite3.Connection) -> None:
    """Empty the write-ahead log, so that what was deleted is gone from every file."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
