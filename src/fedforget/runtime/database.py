"""SQLite as this package uses it: crash-safe, and with deleted content overwritten."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fedforget.errors import RunError


def open_database(path: Path | None, schema: str) -> sqlite3.Connection:
    """Open or create a database (in memory when there is no path), and create missing tables.

    The write-ahead log protects it against crashes; ``secure_delete`` overwrites deleted content, which the write-ahead
    log may still hold until ``scrub``.
    """
    name = ":memory:" if path is None else str(path)
    try:
        db = sqlite3.connect(name, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        db.executescript(schema)
    except sqlite3.Error as error:
        raise RunError(f"Cannot open {name}: {error}.", "Check that it is fedforget's and can be written.") from error
    return db


def scrub(db: sqlite3.Connection) -> None:
    """Empty the write-ahead log, so that no file holds deleted content."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
