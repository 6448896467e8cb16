"""Formats: which reader a file wants, told by its name and its first line."""

from __future__ import annotations

import math
from pathlib import Path

from fedforget.data.files import first_line_of
from fedforget.data.interactions import Interactions
from fedforget.data.tables import SEPARATORS, Column, checked_separator
from fedforget.errors import DataError

PARQUET = (".parquet", ".pq")
STEAM = "steam-200k.csv"
ENDINGS = [*SEPARATORS, *PARQUET]


def read(
    path: str | Path,
    *,
    user: Column | None = None,
    item: Column | None = None,
    separator: str | None = None,
) -> Interactions:
    """Read the interactions of a file in the way that its ending suggests.

    - ``.parquet``, ``.pq``: a Parquet file;
    - ``.inter``: a RecBole atomic file;
    - ``steam-200k.csv``: the Steam table of Kaggle;
    - ``.txt`` without a tab in its first line: one line a user;
    - ``.csv``, ``.tsv``, ``.data``, ``.dat`` (with ``::``) and every other ``.txt``: a table.

    A table's columns are ``user`` and ``item`` unless named; where its first line is all numbers it has no
    header, and they are the first two. Naming a column or the separator makes any text file but ``.inter``
    a table.
    """
    place = Path(path)
    ending = place.suffix.lower()
    plain = user is None and item is None and separator is None
    if ending in PARQUET:
        return Interactions.from_parquet(path, _name(path, user, "user"), _name(path, item, "item"))
    if ending == ".inter":
        return Interactions.from_recbole(path, _name(path, user, "user_id"), _name(path, item, "item_id"))
    if plain and place.name.lower() == STEAM:
        return Interactions.from_steam_csv(path)
    if separator is None and ending not in SEPARATORS:
        raise DataError(
            f"{path} ends in {ending!r}, which names no known format.",
            f"Give a separator to read it as a table, or use one of {', '.join(ENDINGS)}.",
        )
    if plain and ending == ".txt" and "\t" not in first_line_of(path):
        return Interactions.from_lines(path)
    return _read_table(path, user, item, checked_separator(path, separator))


def _name(path: str | Path, given: Column | None, usual: str) -> str:
    """The name of a column, in a file whose columns always have one."""
    if isinstance(given, int):
        raise DataError(f"Column {given} of {path} is given by its place.", "Its columns have names: give one.")
    return usual if given is None else given


def _read_table(path: str | Path, user: Column | None, item: Column | None, separator: str) -> Interactions:
    """Read a table, with the usual names or places for the columns that were not given."""
    named = isinstance(user, str) or isinstance(item, str)
    placed = isinstance(user, int) or isinstance(item, int)
    by_place = placed or (not named and _all_numbers(path, separator))
    usual: tuple[Column, Column] = (0, 1) if by_place else ("user", "item")
    return Interactions.from_csv(
        path, usual[0] if user is None else user, usual[1] if item is None else item, separator
    )


def _all_numbers(path: str | Path, separator: str) -> bool:
    """Whether the first line holds nothing but numbers, which no header does."""
    fields = first_line_of(path).split(separator)
    try:
        return all(math.isfinite(float(field.strip('"'))) for field in fields)
    except ValueError:
        return False
