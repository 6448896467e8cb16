"""Ids on the command line and in files. They are taken exactly as they are written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from fedforget.data.ids import Id
from fedforget.errors import ConfigError


class KnownIds:
    """The ids of the users, or items, that a command can name.

    A text names the id that is written like it. Text that fits only without its spaces, or as a number (007 for 7), is
    refused with both: the wrong user must not be forgotten.
    """

    def __init__(self, known: Sequence[Id], kind: str = "user") -> None:
        self.kind = kind
        self._by_text = {str(id_): id_ for id_ in known}
        self._numbers = all(isinstance(id_, int) for id_ in known)

    def parse(self, text: str) -> Id:
        """The id that a text names; an unknown one is returned with the type of the known ids."""
        if text in self._by_text:
            return self._by_text[text]
        if alike := [known for known in self._by_text if _loosely(known) == _loosely(text)]:
            raise ConfigError(
                f"There is no {self.kind} {text!r}, but there is {alike[0]!r}.",
                "Ids are compared exactly, with spaces and leading zeros. Give the one you mean.",
            )
        return int(text) if self._numbers and _is_number(text) else text

    def parse_all(self, values: Sequence[str]) -> list[Id]:
        """The ids in the values of an option: each is an id, ids separated by commas, or a JSON list."""
        ids: list[Id] = []
        for value in values:
            if value.lstrip().startswith("[") and value not in self._by_text:
                ids += [self.parse(text) for text in _json_list(value, self.kind, repr(value))]
                continue
            parts = value.split(",")
            if len(parts) > 1 and value in self._by_text:
                if all(part in self._by_text for part in parts):
                    several = ", ".join(repr(part) for part in parts)
                    raise ConfigError(
                        f"{value!r} is one {self.kind}, but could also mean {several}.",
                        f"Give a JSON list: {json.dumps([value])} or {json.dumps(parts)}.",
                    )
                parts = [value]
            if not all(parts):
                raise ConfigError(
                    f"{value!r} has an empty {self.kind} id.", "Separate ids by one comma, without spaces."
                )
            ids += [self.parse(part) for part in parts]
        return ids

    def read(self, path: Path) -> list[Id]:
        """The ids in a file; see ``read_ids``."""
        return [self.parse(text) for text in read_ids(path, self.kind)]


def read_ids(path: Path, kind: str) -> list[str]:
    """The ids in a file as text: one per line, or a JSON list (.json), or a column of a table (.csv)."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", f"Give a text file with one {kind} id per line."
        ) from error
    if path.suffix == ".json":
        return _json_list(text, kind, str(path))
    if path.suffix == ".csv":
        return _column(text, kind, path)
    return [line for line in text.split("\n") if line]


def _json_list(text: str, kind: str, source: str) -> list[str]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}.", f'Give a list of {kind} ids: ["a", "b"].') from error
    if not isinstance(values, list) or not all(type(value) in (int, str) for value in values):
        raise ConfigError(f"{source} is not a list of {kind} ids.", 'Give one: ["a", "b"] or [17, 23].')
    return [str(value) for value in values]


def _column(text: str, kind: str, path: Path) -> list[str]:
    """The column that is called as the kind of ids, or the only one."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    names = list(rows.fieldnames or ())
    name = kind if kind in names else names[0] if len(names) == 1 else None
    if name is None:
        raise ConfigError(
            f"{path} has no column {kind!r}: {', '.join(names)}.", f"Name the column with the ids {kind}."
        )
    return [row[name] for row in rows if row[name]]


def _loosely(text: str) -> str:
    """A text without what is easily mistaken: spaces around it, leading zeros of a number."""
    text = text.strip()
    return str(int(text)) if _is_digits(text) else text


def _is_digits(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal()


def _is_number(text: str) -> bool:
    """Whether a text is a whole number as it is normally written."""
    return _is_digits(text) and str(int(text)) == text
