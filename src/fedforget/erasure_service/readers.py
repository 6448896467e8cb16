"""Readers: connections to a database that only read, one for each thread.

A connection sees the database as it was when its oldest unfinished query began. Threads that shared one would not see
what was just committed while one of them reads many rows.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from pathlib import Path


class Readers:
    """The reading connections of a database file. Those of a thread that has ended are closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: weakref.WeakSet[_Reader] = weakref.WeakSet()

    def get(self) -> sqlite3.Connection:
        """The connection of the current thread."""
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = _Reader(self._path)
            with self._lock:
                self._opened.add(reader)
        return reader.db

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for reader in list(self._opened):
                reader.db.close()


class _Reader:
    """A connection that is closed when its thread has ended."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA query_only = ON")

    def __del__(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
