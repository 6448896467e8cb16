"""Tables: a row for each interaction, with a column of user ids and a column of item ids.

Each reader returns the two columns; `Interactions` checks the ids and builds itself from them. Every column
of a text file is read as text, and its ids become numbers only where all of them do.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from fedforget.data.files import content_of, text_of
from fedforget.data.ids import ids_from_series, ids_from_text
from fedforget.errors import DataError

Column = str | int
Columns = tuple[NDArray[Any], NDArray[Any]]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".data": "\t", ".txt": "\t", ".inter": "\t", ".dat": "::"}
#: Stands for a separator of several characters, such as the ``::`` of MovieLens: readers want a single byte.
UNIT_SEPARATOR = "\x1f"


def csv_columns(path: str | Path, user: Column, item: Column, separator: str | None = None) -> Columns:
    """The columns of a CSV or TSV file. Columns named by their place, counted from 0, mean: no header."""
    table = text_table(path, separator, header=isinstance(user, str) or isinstance(item, str))
    return _text_columns(table, user, item, str(path))


def recbole_columns(path: str | Path, user: str = "user_id", item: str = "item_id") -> Columns:
    """The columns of a RecBole atomic file: tabs, and a header of name:type, such as user_id:token."""
    table = text_table(path, "\t", header=True)
    plain = [name for name in table.columns if ":" not in name]
    if plain:
        raise DataError(
            f"{path} has a column {plain[0]!r} without a type: it is not a RecBole file.",
            "A RecBole header reads user_id:token, item_id:token ...; read other tables with from_csv.",
        )
    untyped_names = {name.rpartition(":")[0]: name for name in table.columns}
    table = table.select(pl.col(typed).alias(name) for name, typed in untyped_names.items())
    return _text_columns(table, user, item, str(path))


def steam_columns(path: str | Path, min_items: int = 5) -> Columns:
    """The columns of Kaggle's steam-200k.csv, whose rows are: user, game title, purchase or play, hours, 0.

    Most games of a user stand in two rows, bought and played. Users with fewer than ``min_items`` games are
    left out, as in the papers.
    """
    table = text_table(path, ",", header=False)
    kinds = set() if table.width < 3 else set(table[:, 2].unique().to_list())
    if not 4 <= table.width <= 5 or not kinds <= {"purchase", "play"}:
        raise DataError(
            f"{path} is not the Steam table: its rows are not user, game, purchase|play, hours, 0.",
            "Read another CSV file with from_csv, naming its columns.",
        )
    users, games = table[:, 0], table[:, 1]
    user_ids, names = ids_from_text(users, "user", str(path)), ids_from_series(games, "item", str(path))
    pairs = pl.DataFrame({"user": users, "game": games})
    keep = pairs.select(pl.col("game").n_unique().over("user") >= min_items).to_series().to_numpy()
    if not keep.any():
        raise DataError(f"{path} has no user with {min_items} games or more.", "Lower min_items.")
    return user_ids[keep], names[keep]


def parquet_columns(path: str | Path, user: str, item: str) -> Columns:
    """The columns of a Parquet file."""
    content = io.BytesIO(content_of(path))
    try:
        names = list(pl.read_parquet_schema(content))
        wanted = [_column(names, user, "user", str(path)), _column(names, item, "item", str(path))]
        content.seek(0)
        table = pl.read_parquet(content, columns=list(dict.fromkeys(wanted)))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {_first_line(error)}", "Write it again.") from None
    return frame_columns(table, user, item, str(path))


def frame_columns(frame: Any, user: str, item: str, source: str = "the frame") -> Columns:
    """The columns of a pandas or polars frame. Nothing of pandas is needed: its columns know numpy."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if not hasattr(frame, "columns"):
        raise DataError(f"{source} is a {type(frame).__name__}.", "Give a pandas or polars data frame.")
    names = list(frame.columns)
    users = frame[_column(names, user, "user", source)]
    items = frame[_column(names, item, "item", source)]
    if isinstance(frame, pl.DataFrame):
        return ids_from_series(users, "user", source), ids_from_series(items, "item", source)
    return users.to_numpy(), items.to_numpy()


def text_table(path: str | Path, separator: str | None, *, header: bool) -> pl.DataFrame:
    """A delimited text file as a frame of strings, in which every row has as many fields as the first."""
    text = text_of(path)
    separator = checked_separator(path, separator)
    if len(separator.encode()) > 1:
        text, separator = text.replace(separator, UNIT_SEPARATOR), UNIT_SEPARATOR
    try:
        table = pl.read_csv(text.encode(), separator=separator, has_header=header, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        _refuse_ragged(text, separator, str(path))
        hint = "Check its separator and its quotation marks."
        raise DataError(f"{path} cannot be read as a table: {_first_line(error)}", hint) from None
    if table.width and table[:, -1].null_count():
        _refuse_ragged(text, separator, str(path))
    return table


def checked_separator(path: str | Path, separator: str | None) -> str:
    """The separator of a text file: that given, or that which its ending suggests."""
    if separator is None:
        return SEPARATORS.get(Path(path).suffix.lower(), ",")
    if separator == "" or set(separator) & set('"\r\n'):
        raise DataError(f"The separator of {path} is {separator!r}.", 'Give one such as "," or ";".')
    return separator


def _text_columns(table: pl.DataFrame, user: Column, item: Column, source: str) -> Columns:
    users = table[_column(table.columns, user, "user", source)]
    items = table[_column(table.columns, item, "item", source)]
    return ids_from_text(users, "user", source), ids_from_text(items, "item", source)


def _column(names: list[str], wanted: Column, kind: str, source: str) -> str:
    """The name of a column given by its name, or by its place where the file has no header."""
    if isinstance(wanted, str) and wanted in names:
        return wanted
    if isinstance(wanted, int):
        if 0 <= wanted < len(names):
            return names[wanted]
        raise DataError(f"{source} has no column number {wanted}.", f"It has {len(names)}, counted from 0.")
    present = ", ".join(repr(name) for name in names)
    hint = f"Its columns are {present}. Name one as the {kind} column, and check the separator."
    raise DataError(f"{source} has no column {wanted!r}.", hint)


def _refuse_ragged(text: str, separator: str, source: str) -> None:
    """Refuse a table in which some row has more or fewer fields than the first, naming its line."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        width = 0
        for row in rows:
            width = width or len(row)
            if row and len(row) != width:
                raise DataError(
                    f"Line {rows.line_num} of {source} has {len(row)} fields, the first line {width}.",
                    "Mend the line, or check the separator and the quotation marks.",
                )
    except csv.Error as error:
        raise DataError(f"Line {rows.line_num} of {source}: {error}.", "Mend the line.") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."
