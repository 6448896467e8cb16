"""Table seals: digests of the content of tables, which show changes that SQLite's own check cannot see.

    table_seal(name TEXT PRIMARY KEY, digest TEXT)

A table without a seal is not checked: those of an earlier version until they change, and large ones, since a change of
one row would cost a digest of all.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedforget.errors import RunError
from fedforget.runtime.database import CHECKED_BYTES, DAMAGED, transaction

#: Tables with more rows have no seal.
MOST_ROWS = 10_000
SCHEMA = "CREATE TABLE IF NOT EXISTS table_seal (name TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID;"


@contextmanager
def sealed(db: sqlite3.Connection, *tables: str, scrubbed: bool = False) -> Iterator[None]:
    """A transaction that changes these tables."""
    with transaction(db, scrubbed=scrubbed):
        yield
        seal(db, *tables)


def seal(db: sqlite3.Connection, *tables: str) -> None:
    """Store the digests of tables; the caller holds the transaction that changed them."""
    if tables:
        db.execute(SCHEMA)
        large = {
            table for table in tables if db.execute(f'SELECT 1 FROM "{table}" LIMIT 1 OFFSET {MOST_ROWS}').fetchone()
        }
        db.executemany("DELETE FROM table_seal WHERE name = ?", [(table,) for table in large])
        rows = [(table, _digest(db, table)) for table in tables if table not in large]
        db.executemany("INSERT OR REPLACE INTO table_seal VALUES (?, ?)", rows)


def changed_table(db: sqlite3.Connection) -> str | None:
    """A sealed table that has other content than when it was sealed; None without any."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'table_seal'").fetchone() is None:
        return None
    seals = db.execute("SELECT name, digest FROM table_seal").fetchall()
    return next((table for table, digest in seals if digest != _digest(db, table)), None)


def check_seals(db: sqlite3.Connection, path: Path, schema: str) -> None:
    """Raise an error if a table of a run's database has other columns than in the schema, or not the sealed content.

    The content of large databases is not read.
    """
    try:
        with closing(sqlite3.connect(":memory:")) as model:
            model.executescript(schema)
            expected, found = _columns(model), _columns(db)
        if wrong := next((table for table in found if found[table] != expected.get(table, found[table])), None):
            raise sqlite3.DatabaseError(f"its table {wrong!r} has other columns")
        if path.stat().st_size > CHECKED_BYTES:
            return
        db.execute("BEGIN")  # another process may be writing
        wrong = changed_table(db)
        db.rollback()
    except DAMAGED as error:
        raise RunError(f"{path} is damaged: {error}.", "Restore it from a copy of the run.") from error
    if wrong is not None:
        raise RunError(
            f"{path} is damaged: its table {wrong!r} does not match its digest.", "Restore it from a copy of the run."
        )


def _columns(db: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of every table."""
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {table: [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')] for table in tables}


def _digest(db: sqlite3.Connection, table: str) -> str:
    rows = sorted(repr(row) for row in db.execute(f'SELECT * FROM "{table}"'))
    return hashlib.blake2b("\n".join(rows).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
