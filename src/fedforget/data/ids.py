"""Ids of users and items: whole numbers or strings, checked row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fedforget.errors import DataError

Id = int | str

FIX_ROWS = "Drop or correct rows without an id."
USE_STRINGS = "Use strings for such ids."
LARGEST = 2**63 - 1
#: Text for a missing value in a column whose other values are numbers.
MISSING = ["", "nan", "null", "none", "na", "n/a", "<na>"]
_WHOLE = r"^-?(?:0|[1-9][0-9]*)$"
_DECIMAL = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"


def checked_ids(column: ArrayLike, kind: str, source: str) -> NDArray[Any]:
    """A column of ids as whole numbers or strings; anything else is an error that names the row.

    ``kind`` ("user" or "item") and ``source`` (such as a file) are for the error.
    """
    ids = np.asarray(column)
    if ids.ndim != 1:
        raise DataError(f"The {kind} ids of {source} have {ids.ndim} dimensions.", "Give one column of ids.")
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind in "OUST":
        return _checked_names(ids, kind, source)
    if ids.dtype.kind == "f":
        _refuse(~np.isfinite(ids), ids, kind, source, "is not a number", FIX_ROWS)
        _refuse(ids != np.floor(ids), ids, kind, source, "is not a whole number", "Is this the right column?")
        too_large = np.abs(ids) > 2.0**53
        _refuse(too_large, ids, kind, source, "is too large to be exact", "Store ids as integers or text.")
        ids = ids.astype(np.int64)
    if ids.dtype.kind not in "iu":
        raise DataError(f"The {kind} ids of {source} are {ids.dtype}.", "Ids are whole numbers or strings.")
    _refuse(ids < 0, ids, kind, source, "is negative", "Ids start at 0; use strings for other ids.")
    _refuse(ids > LARGEST, ids, kind, source, "does not fit 64 bits", USE_STRINGS)
    return ids.astype(np.int64)


def factorised(ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct ids, sorted, and the index of every row's id among them."""
    if ids.dtype.kind != "O":
        unique, indices = np.unique(ids, return_inverse=True)
        return unique, indices.astype(np.int64)
    names = ids.tolist()
    distinct = sorted(set(names))
    index = {name: i for i, name in enumerate(distinct)}
    return np.array(distinct, object), np.fromiter((index[name] for name in names), np.int64, len(names))


def ids_from_text(column: pl.Series, kind: str, source: str) -> NDArray[Any]:
    """The ids of a column of text: numbers if every value is a whole number, else the text unchanged.

    ``007`` is a string, since it cannot be restored from the number 7. ``7.0`` is the number 7, since data frames write
    whole numbers so in a column with missing values.
    """
    bare = column.str.strip_chars()
    missing = bare.is_null() | bare.str.to_lowercase().is_in(MISSING)
    number = bare.str.contains(_DECIMAL).fill_null(False)
    if not (number.any() and (number | missing).all()):
        _refuse(bare.fill_null("") == "", bare, kind, source, "is missing", FIX_ROWS)
        return column.to_numpy()
    _refuse(missing, bare, kind, source, "is missing", FIX_ROWS)
    if not bare.str.contains(_WHOLE).all():
        return bare.cast(pl.Float64).to_numpy()
    whole = bare.cast(pl.Int64, strict=False)
    _refuse(whole.is_null(), bare, kind, source, "does not fit 64 bits", USE_STRINGS)
    return whole.to_numpy()


def ids_from_series(column: pl.Series, kind: str, source: str) -> NDArray[Any]:
    """The ids of a typed column of a data frame or Parquet file."""
    _refuse(column.is_null(), column, kind, source, "is missing", FIX_ROWS)
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.String or column.dtype.is_integer() or column.dtype.is_float():
        return np.array(column.to_list(), object) if column.dtype == pl.Int128 else column.to_numpy()
    raise DataError(f"The {kind} ids of {source} are {column.dtype}.", "Ids are whole numbers or strings.")


def _checked_names(ids: NDArray[Any], kind: str, source: str) -> NDArray[Any]:
    """The ids of a column of Python objects: strings or whole numbers, but not both."""
    values = ids.tolist()
    numbers = np.array([isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values])
    texts = np.array([isinstance(value, str) and bool(value.strip()) for value in values])
    _refuse(~numbers & ~texts, values, kind, source, "is neither a number nor a string", FIX_ROWS)
    if numbers.all():
        too_large = np.array([not -LARGEST <= value <= LARGEST for value in values])
        _refuse(too_large, values, kind, source, "does not fit 64 bits", USE_STRINGS)
        return checked_ids(np.array(values, np.int64), kind, source)
    _refuse(~texts, values, kind, source, "is a number among strings", "Make all ids of the column strings.")
    return np.array(values, object)


def _refuse(bad: Any, ids: Any, kind: str, source: str, reason: str, hint: str) -> None:
    """Raise an error that names the first row whose flag in ``bad`` is set."""
    if bad.any():
        row = int(np.argmax(np.asarray(bad)))
        shown = repr(ids[row]) if isinstance(ids[row], str) else ids[row]
        raise DataError(f"Row {row + 1} of {source}: {kind} id {shown} {reason}.", hint)
