"""ParsedFile: the values in a file of a run, with the names of their fields."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.runtime.database import DAMAGED
from fedforget.server.wanted import Value

SQLITE = b"SQLite format 3\0"
#: Larger text files are searched as bytes only.
LARGEST_TEXT = 1 << 28
#: The longest header of a safetensors file.
LARGEST_HEADER = 100_000_000


@dataclass
class ParsedFile:
    """``values`` of a file, or its ``text`` if it has no known form.

    ``rest`` is the place from which its bytes are searched for ids; None if the values are all there is. ``problem`` is
    why it could not be parsed as what it is. To go through the values of a damaged database raises ``ValueError``.
    """

    values: Iterable[Value] = ()
    text: str | None = None
    rest: int | None = 0
    problem: str = ""

    @classmethod
    def read(cls, path: Path) -> ParsedFile:
        """Parse a file; an ``OSError`` if it cannot be read at all."""
        with path.open("rb") as file:
            head = file.read(len(SQLITE))
        if head == SQLITE or (path.suffix in (".sqlite", ".db") and head):
            return cls(_database(path))
        if path.suffix == ".safetensors":
            return _safetensors(path)
        if path.stat().st_size > LARGEST_TEXT:
            return cls()
        content = path.read_bytes()
        try:
            text = _decoded(content)
        except UnicodeDecodeError:
            return cls()
        return _text_file(path, text)


def _text_file(path: Path, text: str) -> ParsedFile:
    if path.suffix == ".jsonl":
        return _lines(text)
    parse = PARSERS.get(path.suffix, _json)
    try:
        return ParsedFile(list(parse(path, text)), rest=None)
    except (ValueError, csv.Error, RecursionError) as error:
        problem = f"it is not {path.suffix[1:].upper()}: {error}" if path.suffix in PARSERS and text else ""
        return ParsedFile(text=text, problem=problem)


def _json(path: Path, text: str) -> list[Value]:
    return list(values_in(json.loads(text), path.name.partition(".")[0]))


def _toml(path: Path, text: str) -> list[Value]:
    comments = [Value("", line.partition("#")[2]) for line in text.splitlines() if "#" in line]
    return [*values_in(tomllib.loads(text), ""), *comments]


def _csv(path: Path, text: str) -> list[Value]:
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ","))
    names = rows[0] if rows else []
    cells = [Value("", name) for name in names]
    for row in rows[1:]:
        cells += [Value(names[place] if place < len(names) else "", cell) for place, cell in enumerate(row)]
    return cells


PARSERS: Mapping[str, Callable[[Path, str], list[Value]]] = {
    ".json": _json,
    ".toml": _toml,
    ".csv": _csv,
    ".tsv": _csv,
}


def _lines(text: str) -> ParsedFile:
    """JSON lines; those that cannot be parsed, such as one that a crash cut short, as text."""
    values, rest = [], []
    for line in text.splitlines():
        try:
            values += list(values_in(json.loads(line), ""))
        except (ValueError, RecursionError):
            rest.append(line)
    return ParsedFile(values, "\n".join(rest), None)


def values_in(value: Any, name: str, *, many: bool = False) -> Iterator[Value]:
    """The values in plain JSON or TOML data, also in JSON within text; keys are values of the field around them."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield Value(name, key, many=True)
            yield from values_in(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from values_in(one, name, many=True)
    elif isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            yield from values_in(json.loads(value), name)
        except (ValueError, RecursionError):
            yield Value(name, value, many, text=True)
    else:
        yield Value(name, value, many, text=True)


def _safetensors(path: Path) -> ParsedFile:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        raw = file.read(min(size, LARGEST_HEADER))
    try:
        header = json.loads(raw)
        metadata = header.pop("__metadata__", {})
        values = [*values_in(metadata, ""), *(Value("", name) for name in header)]
    except (ValueError, AttributeError, RecursionError) as error:
        return ParsedFile(problem=f"it is not safetensors: {error}")
    return ParsedFile(values, rest=8 + size)


def _database(path: Path) -> Iterator[Value]:
    try:
        with _opened(path) as db:
            yield from _cells(db)
    except DAMAGED as error:
        raise ValueError(f"the database cannot be read: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database to read; a copy of it if its write-ahead log cannot be used where it is."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
            yield db
            return
    except sqlite3.OperationalError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        for file in (path, path.with_name(f"{path.name}-wal")):
            if file.exists():
                shutil.copyfile(file, Path(folder) / file.name)
        with closing(sqlite3.connect(Path(folder) / path.name)) as db:
            yield db


def _cells(db: sqlite3.Connection) -> Iterator[Value]:
    """The values in every column of every table, and JSON within them."""
    db.text_factory = _decoded_cell
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        yield Value("", table)
        for (column,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall():
            yield Value("", column)
            name = table if column == "id" else column
            for (cell,) in db.execute(f"SELECT DISTINCT {_quoted(column)} FROM {_quoted(table)}"):
                if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{"):
                    yield from values_in(cell, name)
                elif cell is not None:
                    yield Value(name, cell)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _decoded(content: bytes) -> str:
    """A text in UTF-8, UTF-16 or Latin-1; ``UnicodeDecodeError`` if it is none."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16")
    half = len(content) // 2
    if half and content[1::2].count(0) > 0.9 * half:
        return content.decode("utf-16-le")
    if half and content[::2].count(0) > 0.9 * half:
        return content.decode("utf-16-be")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    if "\0" in text:
        raise UnicodeDecodeError("utf-8", content, 0, 1, "it is not text")
    return text


def _decoded_cell(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
