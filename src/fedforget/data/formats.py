"""Choosing the reader of a file by its name and its first line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

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
    time: Column | None = None,
    rating: Column | None = None,
    min_rating: float | None = None,
) -> Interactions:
    """Read the interactions in a file; its extension decides the format.

    - ``.parquet``, ``.pq``: a Parquet file;
    - ``.inter``: a RecBole atomic file;
    - ``steam-200k.csv``: the Steam table of Kaggle;
    - ``.txt`` without a tab in its first line: one line per user;
    - ``.csv``, ``.tsv``, ``.data``, ``.dat`` (with ``::``) and every other ``.txt``: a table.

    The default columns of a table are ``user`` and ``item``; if its first line contains only numbers, it has no header
    and they are the first two. If a column or the separator is given, every text file except ``.inter`` is a table.
    ``time`` names a column of times; with ``min_rating`` only rows whose ``rating`` is at least that count.
    """
    name = Path(path).name.lower()
    ending = Path(path).suffix.lower()
    extra = {"time": time, "rating": rating, "min_rating": min_rating}
    no_options = all(given is None for given in (user, item, separator, *extra.values()))
    if ending in PARQUET:
        return Interactions.from_parquet(path, _name(path, user, "user"), _name(path, item, "item"), **extra)
    if ending == ".inter":
        return Interactions.from_recbole(path, _name(path, user, "user_id"), _name(path, item, "item_id"), **extra)
    if no_options and name == STEAM:
        return Interactions.from_steam_csv(path)
    if separator is None and ending not in SEPARATORS:
        raise DataError(
            f"{path} ends in {ending!r}, which is not a known format.",
            f"Give a separator to read it as a table, or use one of {', '.join(ENDINGS)}.",
        )
    if no_options and ending == ".txt" and "\t" not in first_line_of(path):
        return Interactions.from_lines(path)
    return _read_table(path, user, item, checked_separator(path, separator), extra)


def _name(path: str | Path, given: Column | None, usual: str) -> str:
    """The name of a column in a file whose columns always have names."""
    if isinstance(given, int):
        raise DataError(f"Column {given} of {path} is given by its position.", "Give the column's name.")
    return usual if given is None else given


def _read_table(
    path: str | Path, user: Column | None, item: Column | None, separator: str, extra: dict[str, Any]
) -> Interactions:
    """Read a table, with the default columns where none are given."""
    named = isinstance(user, str) or isinstance(item, str)
    numbered = isinstance(user, int) or isinstance(item, int)
    usual: tuple[Column, Column] = ("user", "item")
    if numbered or (not named and _all_numbers(path, separator)):
        usual = (0, 1)
    user, item = usual[0] if user is None else user, usual[1] if item is None else item
    return Interactions.from_csv(path, user, item, separator, **extra)


def _all_numbers(path: str | Path, separator: str) -> bool:
    """Whether the first line contains only numbers, so that it is not a header."""
    fields = first_line_of(path).split(separator)
    try:
        return all(math.isfinite(float(field.strip('"'))) for field in fields)
    except ValueError:
        return False
