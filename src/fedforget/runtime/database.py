"""SQLite as this package uses it: crash-safe, and with deleted content overwritten."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedforget.errors import RunError, SystemLimitError
from fedforget.runtime.files import can_write, cannot_write, make_private, refused

#: Larger databases are not checked when they are opened, which would take more than some milliseconds.
CHECKED_BYTES = 1 << 22

#: What is raised for a damaged database: the message of an error may quote text that cannot be decoded.
DAMAGED = (sqlite3.Error, UnicodeDecodeError)

#: SQLite's codes for what the operating system refuses; the file itself need not be damaged.
REFUSALS = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}


def open_database(path: Path | None, schema: str) -> sqlite3.Connection:
    """Open or create a database (in memory when there is no path), and create missing tables.

    The write-ahead log protects it against crashes; ``secure_delete`` overwrites deleted content, which the write-ahead
    log may still hold until ``scrub``.
    """
    name = ":memory:" if path is None else str(path)
    if path is not None and path.exists() and not can_write(path.parent):
        return _open_to_read(path)
    try:
        if path is not None:
            make_private(path)
        db = sqlite3.connect(name, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        db.executescript(schema)
    except (OSError, *DAMAGED) as error:
        hint = "Check that it is fedforget's and can be written."
        raise database_refused(name, error) or RunError(f"Cannot open {name}: {error}.", hint) from error
    return db


def database_refused(path: Path | str, error: Exception) -> SystemLimitError | None:
    """The error for a database that the operating system refuses to open, read or write; None for any other reason."""
    if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in REFUSALS:
        hint = "Check that there is room, who may write it, and the limit of open files (ulimit -n). The same command "
        return SystemLimitError(f"Cannot use {path}: {error}.", f"{hint}continues.")
    return refused(path, error)


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A database in a folder that cannot be written. One with a write-ahead log is read from a copy."""
    try:
        log = path.with_name(path.name + "-wal")
        if not (log.exists() and log.stat().st_size):
            return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)
        with tempfile.TemporaryDirectory() as folder:
            for file in (path, log):
                shutil.copyfile(file, Path(folder) / file.name)
            with closing(sqlite3.connect(Path(folder) / path.name)) as copy:
                db = sqlite3.connect(":memory:", check_same_thread=False)
                copy.backup(db)
        return db
    except (OSError, sqlite3.Error) as error:
        hint = "Check that it is fedforget's and can be read."
        raise database_refused(path, error) or RunError(f"Cannot read {path}: {error}.", hint) from error


def check_database(path: Path, *, may_be_empty: bool = True) -> None:
    """Raise an error if a database is damaged, or missing or empty though it should not be. Large ones are not read."""
    if not path.exists():
        if not may_be_empty:
            raise RunError(f"{path} is missing.", "Restore it from a copy of the run.")
        return
    size = path.stat().st_size
    if not size and not may_be_empty:
        raise RunError(f"{path} is empty.", "Restore it from a copy of the run.")
    if 0 < size <= CHECKED_BYTES:
        with closing(open_database(path, "")) as db:
            try:
                found = db.execute("PRAGMA integrity_check").fetchone()[0]
            except DAMAGED as error:
                found = str(error)
        if found != "ok":
            raise RunError(f"{path} is damaged: {found}.", "Restore it from a copy of the run.")


@contextmanager
def transaction(db: sqlite3.Connection, *, scrubbed: bool = False) -> Iterator[None]:
    """A transaction; with ``scrubbed``, deleted content is removed from the write-ahead log too.

    If it cannot be written, the error names the file.
    """
    try:
        with db:
            yield
        if scrubbed:
            scrub(db)
    except sqlite3.Error as error:
        path = db.execute("PRAGMA database_list").fetchone()[2]
        raise cannot_write(Path(path), error) from error


def scrub(db: sqlite3.Connection) -> None:
    """Empty the write-ahead log, so that no file holds deleted content."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def scrub_if_free(db: sqlite3.Connection) -> bool:
    """``scrub``, or false if others use the log now, who are not made to wait: call it again later then."""
    db.execute("PRAGMA busy_timeout = 50")
    try:
        return not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        db.execute("PRAGMA busy_timeout = 5000")
