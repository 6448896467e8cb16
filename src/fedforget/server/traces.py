"""Traces: a search of every file of a run folder for what names some users."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from fedforget.models import Recommender
from fedforget.runtime.randomness import UserId, user_key

#: Bytes at the start of a user's initial vector that are searched for.
VECTOR_BYTES = 16
#: Text ids that are shorter are searched for in tables and settings only; they stand in other files by chance.
SHORTEST_ID = 6
#: The search reads a file in pieces of this size.
PIECE = 1 << 24
TEXTS = (".toml", ".json", ".jsonl", ".csv")


def find_traces(folder: Path, users: Sequence[UserId], model: Recommender, seed: int) -> list[str]:
    """The files below a folder with a trace of a user, with the kind of trace; no ids.

    Searched for: the key of the user's random draws (as bytes, digits, and in names of files), the initial user vector,
    the id as a cell of a table, as a quoted word of a text file and, unless it is short, anywhere.
    """
    found = []
    keys = np.array([user_key(user) for user in users], np.uint64)
    vectors = [row.tobytes()[:VECTOR_BYTES] for row in model.init_private(keys, seed)]
    wanted = {vector: "vector" for vector in vectors if len(vector) == VECTOR_BYTES}
    for user, key in zip(users, keys.tolist(), strict=True):
        wanted |= dict.fromkeys((key.to_bytes(8, "little"), key.to_bytes(8, "big")), "key")
        wanted |= dict.fromkeys((f"{key:016x}".encode(), str(key).encode()), "key")
        if isinstance(user, str) and len(user) >= SHORTEST_ID:
            wanted[user.encode()] = "id"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        kinds = {kind for trace, kind in wanted.items() if trace in name.encode()}
        kinds |= {wanted[trace] for trace in _traces_in(path, wanted)}
        kinds |= {"id"} if _cells(path, set(users)) or _words(path, users) else set()
        found += [f"{name}: {kind}" for kind in sorted(kinds)]
    return found


def _traces_in(path: Path, wanted: dict[bytes, str]) -> set[bytes]:
    longest = max(map(len, wanted), default=1)
    found = set()
    with path.open("rb") as file:
        kept = b""
        while piece := file.read(PIECE):
            content = kept + piece
            found |= {trace for trace in wanted if trace in content}
            kept = content[-longest:]
    return found


def _cells(path: Path, users: set[UserId]) -> bool:
    """Whether a table of a database has one of these ids in a column of users."""
    if path.suffix != ".sqlite":
        return False
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return any(value in users for value in _user_columns(db))


def _user_columns(db: sqlite3.Connection) -> Iterator[UserId]:
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
        if "user" in columns:
            yield from (row[0] for row in db.execute(f'SELECT DISTINCT user FROM "{table}"'))


def _words(path: Path, users: Sequence[UserId]) -> bool:
    """Whether a text file has one of these ids as a quoted word, or as the value of a ``user``."""
    if path.suffix not in TEXTS:
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    quoted = any(f'"{user}"' in text for user in users if isinstance(user, str))
    numbers = [user for user in users if not isinstance(user, str)]
    return quoted or any(
        f"{name} {user}{end}" in text for name in ("user =", '"user":') for user in numbers for end in "\n,}"
    )
