"""The database of the erasure service, ``RUN/service/service.sqlite``. Each module owns its tables in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fedforget.runtime.database import open_database
from fedforget.runtime.files import make_folder

FOLDER, NAME = "service", "service.sqlite"


def open_state(run: Path, schema: str) -> sqlite3.Connection:
    """A connection to the service's database in a run folder, with the tables of ``schema``.

    Commits are on disk when they return (``synchronous = FULL``): what was accepted outlives a power failure. Threads
    that write need a connection each, since a transaction belongs to a connection.
    """
    db = open_database(make_folder(run / FOLDER) / NAME, schema)
    db.execute("PRAGMA synchronous = FULL")
    return db
