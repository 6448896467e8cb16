"""Ids: what names a user or an item outside this package, a whole number or a string, checked row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fedforget.errors import DataError

Id = int | str

MEND = "Drop or mend rows without an id."
LARGEST = 2**63 - 1
#: Text that says "no value" in a column whose other values are numbers.
NO_NUMBER = ["", "nan", "null", "none", "na", "n/a", "<na>"]
_WHOLE = r"^-?(?:0|[1-9][0-9]*)$"
_DECIMAL = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"


def checked_ids(column: ArrayLike, kind: str, source: str) -> NDArray[Any]:
    """A column of ids as whole numbers or strings; anything else is refused, naming the row.

    ``kind`` ("user" or "item") and ``source`` (a file, say) are for the error.
    """
    ids = np.asarray(column)
    if ids.ndim != 1:
        raise DataError(f"The {kind} ids of {source} have {ids.ndim} dimensions.", "Give one column of ids.")
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind in "OUST":
        return _checked_names(ids, kind, source)
    if ids.dtype.kind == "f":
        ids = _checked_floats(ids, kind, source)
    if ids.dtype.kind not in "iu":
        raise DataError(f"The {kind} ids of {source} are {ids.dtype}.", "Ids are whole numbers or strings.")
    _refuse(ids < 0, ids, kind, source, "is negative", "Ids start at 0; use strings for other names.")
    _refuse(ids > LARGEST, ids, kind, source, "does not fit 64 bits", "Use strings for such ids.")
    return ids.astype(np.int64)


def factorised(ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different ids, sorted, and the place of every row's id among them."""
    if ids.dtype.kind != "O":
        unique, places = np.unique(ids, return_inverse=True)
        return unique, places.astype(np.int64)
    names = ids.tolist()
    ordered = sorted(set(names))
    place = {name: index for index, name in enumerate(ordered)}
    unique = np.empty(len(ordered), dtype=object)
    unique[:] = ordered
    return unique, np.fromiter((place[name] for name in names), np.int64, len(names))


def ids_from_text(column: pl.Series, kind: str, source: str) -> NDArray[Any]:
    """The ids of a column of text: numbers where every value is a whole number, else the text as it stands.

    ``007`` is a name, since the number 7 would not give it back; ``7.0`` is the number 7, since that is how a
    data frame writes a whole number beside a gap.
    """
    bare = column.str.strip_chars()
    missing = bare.is_null() | bare.str.to_lowercase().is_in(NO_NUMBER)
    number = bare.str.contains(_DECIMAL).fill_null(False)
    if not (number.any() and (number | missing).all()):
        _refuse(bare.fill_null("") == "", bare, kind, source, "is missing", MEND)
        return column.to_numpy()
    _refuse(missing, bare, kind, source, "is missing", MEND)
    if not bare.str.contains(_WHOLE).all():
        return bare.cast(pl.Float64).to_numpy()
    whole = bare.cast(pl.Int64, strict=False)
    _refuse(whole.is_null(), bare, kind, source, "does not fit 64 bits", "Use strings for such ids.")
    return whole.to_numpy()


def ids_from_series(column: pl.Series, kind: str, source: str) -> NDArray[Any]:
    """The ids of a column whose type is already known: that of a data frame or of a Parquet file."""
    _refuse(column.is_null(), column, kind, source, "is missing", MEND)
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.String or column.dtype.is_integer() or column.dtype.is_float():
        return np.array(column.to_list(), object) if column.dtype == pl.Int128 else column.to_numpy()
    raise DataError(f"The {kind} ids of {source} are {column.dtype}.", "Ids are whole numbers or strings.")


def _checked_floats(ids: NDArray[Any], kind: str, source: str) -> NDArray[np.int64]:
    _refuse(~np.isfinite(ids), ids, kind, source, "is not a number", MEND)
    _refuse(ids != np.floor(ids), ids, kind, source, "is not a whole number", "Is this the right column?")
    hint = "Store ids as integers or text."
    _refuse(np.abs(ids) > 2.0**53, ids, kind, source, "is too large to be exact", hint)
    return ids.astype(np.int64)


def _checked_names(ids: NDArray[Any], kind: str, source: str) -> NDArray[Any]:
    """The ids of a column of Python objects, which may be strings or numbers, but not both."""
    values = ids.tolist()
    numbers = np.array([isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values])
    texts = np.array([isinstance(value, str) and bool(value.strip()) for value in values])
    _refuse(~numbers & ~texts, values, kind, source, "is neither a number nor a name", MEND)
    if numbers.all():
        too_large = np.array([not -LARGEST <= value <= LARGEST for value in values])
        _refuse(too_large, values, kind, source, "does not fit 64 bits", "Use strings for such ids.")
        return checked_ids(np.array(values, np.int64), kind, source)
    hint = "Do not mix numbers with text: make all ids of the column strings."
    _refuse(~texts, values, kind, source, "is a number among names", hint)
    names = np.empty(len(values), dtype=object)
    names[:] = values
    return names


def _refuse(bad: Any, ids: Any, kind: str, source: str, reason: str, hint: str) -> None:
    """Refuse a column of ids of which some are bad (a flag for every row), naming the first of them."""
    if bad.any():
        row = int(np.argmax(np.asarray(bad)))
        shown = repr(ids[row]) if isinstance(ids[row], str) else ids[row]
        raise DataError(f"Row {row + 1} of {source}: {kind} id {shown} {reason}.", hint)
