"""Files with one line per user: the user's number, then the item numbers, separated by blanks.

Much research distributes training and test parts in this format, for example of Steam-200k.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.data.files import lines_of
from fedforget.data.ids import LARGEST
from fedforget.errors import DataError

Numbers = NDArray[np.int64]


def line_columns(*paths: str | Path) -> tuple[Numbers, Numbers]:
    """The user and item columns of one or more files; a user may have a line in each of them."""
    if not paths:
        raise DataError("There is no file to read.", "Name at least one, such as train.txt.")
    rows = [row for path in paths for row in _rows(path)]
    users = np.array([row[0] for row in rows], np.int64)
    items = np.array([item for row in rows for item in row[1:]], np.int64)
    return np.repeat(users, [len(row) - 1 for row in rows]), items


def _rows(path: str | Path) -> list[list[int]]:
    rows = []
    for number, line in enumerate(lines_of(path), start=1):
        words = line.split()
        for word in words:
            if not (word.isascii() and word.isdecimal() and len(word) < 20 and int(word) <= LARGEST):
                raise DataError(
                    f"Line {number} of {path}: {word!r} is not a whole number from 0 to {LARGEST}.",
                    "Each line is a user's number and the item numbers, separated by blanks; "
                    "read other files with from_csv.",
                )
        if words:
            rows.append([int(word) for word in words])
    return rows
