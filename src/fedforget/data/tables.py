"""Tables: one row per interaction, with a column of user ids and a column of item ids, perhaps of times and ratings.

Each reader returns the columns; `Interactions` checks the ids. Text files are read as text, and the ids of a column
become numbers only if all of them are numbers.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedforget.data.files import content_of, text_of
from fedforget.data.ids import ids_from_series, ids_from_text
from fedforget.errors import DataError, DataWarning

Column = str | int
#: User ids, item ids and, if there is a column of them, times in seconds.
Columns = tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".data": "\t", ".txt": "\t", ".inter": "\t", ".dat": "::"}
#: Replaces a separator of several characters, such as MovieLens' ``::``, because readers accept a single byte only.
UNIT_SEPARATOR = "\x1f"


KINDS = ("user", "item", "time", "rating")
#: Usual names of columns that change the meaning of a row. They are only used if asked for, and a warning says so.
RATINGS = ("rating", "ratings", "stars")
TIMES = ("timestamp", "time", "date", "datetime")


@dataclass(frozen=True)
class Chosen:
    """The columns of a table to read, by name or position: users, items, times, and ratings of at least a minimum."""

    user: Column
    item: Column
    time: Column | None = None
    rating: Column | None = None
    min_rating: float | None = None

    def __post_init__(self) -> None:
        if self.rating is not None and self.min_rating is None:
            raise DataError(
                f"A rating column, {self.rating!r}, is given without min_rating.", "Give the lowest rating."
            )
        if self.min_rating is not None and self.rating is None:
            object.__setattr__(self, "rating", RATINGS[0])

    def warn_of_unused(self, names: Sequence[str], source: str) -> None:
        """Warn of columns that look like ratings or times and are not used."""
        used = (self.user, self.item, self.time, self.rating)
        for kind, usual, hint in (
            ("rating", RATINGS, "every row counts; set min_rating (--min-rating) to keep high ratings only"),
            ("time", TIMES, "set time (--time-column) to split by time"),
        ):
            found = [name for name in names if name.lower() in usual]
            if found and getattr(self, kind) is None and not set(found).intersection(used):
                warnings.warn(f"{source}: column {found[0]!r} is not used: {hint}.", DataWarning, stacklevel=6)


def csv_columns(path: str | Path, chosen: Chosen, separator: str | None = None) -> Columns:
    """The columns of a CSV or TSV file. If columns are given by position, counted from 0, the file has no header."""
    header = isinstance(chosen.user, str) or isinstance(chosen.item, str)
    table = text_table(path, separator, header=header)
    if header:
        chosen.warn_of_unused(table.columns, str(path))
    return _text_columns(table, chosen, str(path))


def recbole_columns(path: str | Path, chosen: Chosen) -> Columns:
    """The columns of a RecBole atomic file: tab-separated, with a header of name:type such as user_id:token."""
    table = text_table(path, "\t", header=True)
    for name in table.columns:
        if ":" not in name:
            raise DataError(
                f"{path} has a column {name!r} without a type: it is not a RecBole file.",
                "A RecBole header reads user_id:token, item_id:token ...; read other tables with from_csv.",
            )
    typed_names = {name.rpartition(":")[0]: name for name in table.columns}
    table = table.select(pl.col(typed).alias(name) for name, typed in typed_names.items())
    chosen.warn_of_unused(table.columns, str(path))
    return _text_columns(table, chosen, str(path))


def steam_columns(path: str | Path, min_items: int = 5) -> Columns:
    """The columns of Kaggle's steam-200k.csv, whose rows are: user, game title, purchase or play, hours, 0.

    Most games of a user have two rows, purchase and play. Users with fewer than ``min_items`` games are left out, as in
    the papers.
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
    return user_ids[keep], names[keep], None


def parquet_columns(path: str | Path, chosen: Chosen) -> Columns:
    """The columns of a Parquet file."""
    content = io.BytesIO(content_of(path))
    try:
        names = list(pl.read_parquet_schema(content))
        kinds = [kind for kind in KINDS if getattr(chosen, kind) is not None]
        wanted = [_column(names, getattr(chosen, kind), kind, str(path)) for kind in kinds]
        content.seek(0)
        table = pl.read_parquet(content, columns=list(dict.fromkeys(wanted)))
        chosen.warn_of_unused(names, str(path))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {_first_line(error)}", "Write it again.") from None
    return frame_columns(table, chosen, str(path))


def frame_columns(frame: Any, chosen: Chosen, source: str = "the frame") -> Columns:
    """The columns of a pandas or polars data frame. pandas does not have to be installed."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if not hasattr(frame, "columns"):
        raise DataError(f"{source} is a {type(frame).__name__}.", "Give a pandas or polars data frame.")
    names = list(frame.columns)
    chosen.warn_of_unused([str(name) for name in names], source)
    polars = isinstance(frame, pl.DataFrame)
    found: dict[str, Any] = {}
    for kind in KINDS:
        if getattr(chosen, kind) is not None:
            column = frame[_column(names, getattr(chosen, kind), kind, source)]
            found[kind] = column if polars else column.to_numpy()
    if polars:
        users, items = (ids_from_series(found[kind], kind, source) for kind in ("user", "item"))
    else:
        users, items = found["user"], found["item"]
    extras = {kind: pl.Series(kind, column) for kind, column in found.items() if kind in ("time", "rating")}
    return _rated(users, items, extras, chosen, source)


def _rated(
    users: NDArray[Any], items: NDArray[Any], extras: Mapping[str, pl.Series], chosen: Chosen, source: str
) -> Columns:
    """The columns of the rows whose rating is high enough."""
    times = seconds(extras["time"], source) if "time" in extras else None
    if chosen.min_rating is None:
        return users, items, times
    keep = numbers(extras["rating"], "rating", source) >= chosen.min_rating
    if not keep.any():
        raise DataError(f"{source} has no rating of {chosen.min_rating} or more.", "Lower min_rating.")
    return users[keep], items[keep], None if times is None else times[keep]


def seconds(column: pl.Series, source: str) -> NDArray[np.float64]:
    """Times in seconds: numbers as they are, dates and ISO 8601 text as seconds since 1970."""
    if column.dtype == pl.String and column.cast(pl.Float64, strict=False).null_count():
        try:
            column = column.str.to_datetime(time_unit="us")
        except pl.exceptions.PolarsError:
            raise DataError(
                f"The times of {source} cannot be read, such as {column[0]!r}.", "Use numbers or ISO 8601 dates."
            ) from None
    if column.dtype.is_temporal():
        column = column.cast(pl.Datetime("us")).dt.epoch("us") / 1e6
    return numbers(column, "time", source)


def numbers(column: pl.Series, kind: str, source: str) -> NDArray[np.float64]:
    """A column of finite numbers; the first value that is none is named."""
    values = column.cast(pl.Float64, strict=False)
    bad = values.is_null() | ~values.is_finite()
    if bad.any():
        row = int(bad.arg_true()[0])
        raise DataError(f"Row {row + 1} of {source}: {kind} {column[row]!r} is not a number.", "Mend or drop the row.")
    return values.to_numpy()


def text_table(path: str | Path, separator: str | None, *, header: bool) -> pl.DataFrame:
    """A delimited text file as a frame of strings; every row must have as many fields as the first."""
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
    """The separator of a text file: the one given, or the usual one for its file extension."""
    if separator is None:
        return SEPARATORS.get(Path(path).suffix.lower(), ",")
    if separator == "" or set(separator) & set('"\r\n'):
        raise DataError(f"The separator of {path} is {separator!r}.", 'Give one such as "," or ";".')
    return separator


def _text_columns(table: pl.DataFrame, chosen: Chosen, source: str) -> Columns:
    found = {
        kind: table[_column(table.columns, getattr(chosen, kind), kind, source)]
        for kind in KINDS
        if getattr(chosen, kind) is not None
    }
    users, items = (ids_from_text(found.pop(kind), kind, source) for kind in ("user", "item"))
    return _rated(users, items, found, chosen, source)


def _column(names: list[str], wanted: Column, kind: str, source: str) -> str:
    """The name of a column that is given by its name, or by its position if the file has no header."""
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
    """Raise an error that names the first line with more or fewer fields than the first one."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        width = 0
        for row in rows:
            width = width or len(row)
            if row and len(row) != width:
                raise DataError(
                    f"Line {rows.line_num} of {source} has {len(row)} fields, the first line {width}.",
                    "Correct the line, or check the separator and the quotation marks.",
                )
    except csv.Error as error:
        raise DataError(f"Line {rows.line_num} of {source}: {error}.", "Correct the line.") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."
