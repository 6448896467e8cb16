"""UserFiles: one SQLite file per user, with everything that its device stores for a federation.

A file is named by the 16 hexadecimal digits of the user's key and has the tables

    meta(name TEXT PRIMARY KEY, value)                 format, federation (the id of the run it belongs to); on a real
                                                       device also what ``device.member`` stores
    interaction(item INTEGER PRIMARY KEY, part TEXT, since INTEGER)
        on a real device: the user's training and test items, and the round from which each counts
    unwanted(item INTEGER PRIMARY KEY, number INTEGER) training items that the user asked to forget, until that is done
    entry(trajectory TEXT, round INTEGER, body BLOB)   the update log
    private(trajectory TEXT, round INTEGER, row BLOB, crc INTEGER)
        the two newest rounds; float32, little endian; crc is CRC-32 of key, round (8 bytes each) and row
    pending(trajectory TEXT, round INTEGER, body BLOB) updates whose factors the server has not sent yet
    table_seal(name TEXT PRIMARY KEY, digest TEXT)     on a real device: digests of meta, interaction and unwanted
                                                       (``runtime.table_seals``)

A user whose file is damaged is left out with a warning that names the file.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedforget.device.log.disk import foreign
from fedforget.errors import RunError, SystemLimitError
from fedforget.runtime.database import DAMAGED, database_refused, open_database, scrub
from fedforget.runtime.fallbacks import announce
from fedforget.runtime.files import cannot_write, make_folder, most_open_files
from fedforget.runtime.table_seals import changed_table, seal

FORMAT = "4"
#: Files that stay open at most. Each needs three open files; two logs in an erasure leave half of them to others.
OPEN_FILES = max(1, min(64, most_open_files() // 12))
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE interaction (item INTEGER PRIMARY KEY, part TEXT NOT NULL, since INTEGER NOT NULL DEFAULT 0);
CREATE TABLE unwanted (item INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE entry (
    trajectory TEXT NOT NULL, round INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (trajectory, round)
) WITHOUT ROWID;
CREATE TABLE private (
    trajectory TEXT NOT NULL, round INTEGER NOT NULL, row BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (trajectory, round)
) WITHOUT ROWID;
CREATE TABLE pending (
    trajectory TEXT NOT NULL, round INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (trajectory, round)
) WITHOUT ROWID;
"""
#: What brings a file of an older format to the next one.
MIGRATIONS = {
    "2": ("3", "ALTER TABLE interaction ADD COLUMN since INTEGER NOT NULL DEFAULT 0"),
    "3": ("4", "CREATE TABLE unwanted (item INTEGER PRIMARY KEY, number INTEGER NOT NULL)"),
}

Row = tuple[Any, ...]
Statement = tuple[str, Row]


class DamagedError(RunError):
    """A user's file is damaged. A file of another run is a plain ``RunError`` instead."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"The log {path} is damaged: {reason}.", "Restore it from a copy, or delete it: its user starts a new one."
        )


class UserFiles:
    """The files of some users in a folder. They are opened when needed; the last few stay open."""

    def __init__(self, folder: Path, federation: str) -> None:
        self.folder = folder
        self.federation = federation
        self._open: OrderedDict[int, sqlite3.Connection] = OrderedDict()

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    def path(self, key: int) -> Path:
        """The path of a user's file."""
        return self.folder / f"{key:016x}.sqlite"

    def users(self) -> list[int]:
        """The keys of the users with a file, in order."""
        names = [path.stem for path in self.folder.glob("*.sqlite")]
        return sorted(int(name, 16) for name in names if len(name) == 16 and set(name) <= set("0123456789abcdef"))

    def ask(self, key: int, query: str, *values: object) -> list[Row]:
        """Query a user's file; nothing if there is no file, or, with a warning, if it is damaged."""
        try:
            return self.query(key, query, *values)
        except DamagedError as error:
            self._left_out(key, error)
            return []

    def query(self, key: int, query: str, *values: object) -> list[Row]:
        """Query a user's file; nothing if there is none."""
        path = self.path(key)
        if not path.exists():
            return []
        try:
            return self._database(key).execute(query, values).fetchall()
        except DAMAGED as error:
            raise _unusable(path, error) from error

    def change(self, key: int, statements: list[Statement], scrubbed: bool = False, seals: Sequence[str] = ()) -> None:
        """Change a user's file in one transaction; create it if needed.

        With ``scrubbed``, deleted content is removed from the write-ahead log too. ``seals`` are the tables whose
        digests are stored.
        """
        if not self.path(key).exists():
            self._create(self.path(key))
        db = self._database(key)
        try:
            with db:
                changed = sum(db.execute(*statement).rowcount for statement in statements)
                seal(db, *seals)
            if scrubbed and changed:
                scrub(db)
        except sqlite3.OperationalError as error:
            raise cannot_write(self.path(key), error) from error
        except DAMAGED as error:
            raise DamagedError(self.path(key), error) from error

    def delete(self, key: int, statements: list[Statement]) -> None:
        """Delete from a user's file, if there is one, and from the disk; warns if it is damaged."""
        if self.path(key).exists():
            try:
                self.change(key, statements, scrubbed=True)
            except DamagedError as error:
                self._left_out(key, error)

    def check(self, key: int) -> None:
        """Raise an error if a user's file is damaged."""
        found = self.query(key, "PRAGMA quick_check")
        if found and found != [("ok",)]:
            raise DamagedError(self.path(key), found[0][0])
        try:
            table = changed_table(self._database(key)) if found else None
        except DAMAGED as error:
            raise _unusable(self.path(key), error) from error
        if table is not None:
            raise DamagedError(self.path(key), f"its table {table!r} does not match its digest")

    def _left_out(self, key: int, error: RunError) -> None:
        """Announce a damaged file; what is kept of that does not name its user."""
        warning = f"{error.problem} It is left out. {error.hint}"
        announce(warning, self.folder, "files of users are damaged and left out", [key], stacklevel=4)

    def _database(self, key: int) -> sqlite3.Connection:
        """A user's file, opened and checked. If too many are open, the least recently used one is closed."""
        if key not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[key] = self._opened(self.path(key))
        self._open.move_to_end(key)
        return self._open[key]

    def _opened(self, path: Path) -> sqlite3.Connection:
        """An existing file; refused if it is damaged or of another run."""
        if not path.stat().st_size:
            raise DamagedError(path, "it is empty")
        try:
            db = open_database(path, "")
        except SystemLimitError:
            raise
        except RunError as error:
            raise DamagedError(path, error.problem.rstrip(".")) from error
        try:
            meta = dict(db.execute("SELECT name, value FROM meta"))
            while meta.get("format") in MIGRATIONS:
                meta["format"], change = MIGRATIONS[meta["format"]]
                with db:
                    db.execute(change)
                    db.execute("UPDATE meta SET value = ? WHERE name = 'format'", (meta["format"],))
            if meta.get("format") != FORMAT:
                raise DamagedError(path, f"its format is {meta.get('format')}, not {FORMAT}")
            if meta.get("federation") != self.federation:
                raise foreign(path)
        except DAMAGED as error:
            db.close()
            raise _unusable(path, error) from error
        except RunError:
            db.close()
            raise
        return db

    def _create(self, path: Path) -> None:
        """Create a file and rename it into place, so that no file is without its meta table."""
        make_folder(self.folder)
        part = path.with_name(f".{path.name}.part")
        try:
            for stale in (part, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
                stale.unlink(missing_ok=True)
            db = open_database(part, SCHEMA)
            with db:
                meta = {"format": FORMAT, "federation": self.federation}
                db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            db.close()
            part.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise cannot_write(path, error) from error


def _unusable(path: Path, error: Exception) -> RunError:
    """The error for a user's file that is damaged, or that the operating system refuses."""
    return database_refused(path, error) or DamagedError(path, error)
