"""Ledger: the finished cells, in a CSV file to which each is added as it is done.

Several processes may add to one file. A line that a kill cut short does not count and is removed before the next one
is added.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

from fedforget.errors import DataError
from fedforget.files import cannot_write, make_folder
from fedforget.reproduction.cell import Cell
from fedforget.reproduction.row import COLUMNS, Row


class Ledger:
    """A file of finished cells."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[Row]:
        """The latest result of every cell, and one of each run in which it was timed, as they were first finished."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1]
        found: dict[tuple[Cell, str], Row] = {}
        for number, line in enumerate(csv.DictReader(StringIO(whole)), start=2):
            try:
                row = Row.from_dict(line)
            except DataError as error:
                raise DataError(f"{self.path}, line {number}: {error.problem}", error.hint) from None
            found[row.cell, row.result.timing] = row
        return list(found.values())

    def missing(self, cells: Iterable[Cell], *, timed: bool = False) -> list[Cell]:
        """Those of these cells that have no result under the settings of today (or none that was timed)."""
        done = {(row.cell, row.result.settings) for row in self.rows() if row.result.timing or not timed}
        return [cell for cell in dict.fromkeys(cells) if (cell, cell.fingerprint()) not in done]

    def add(self, rows: Sequence[Row]) -> None:
        """Add finished cells in one write."""
        make_folder(self.path.parent)
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o666)
            try:
                _lock(handle)
                self._append(handle, rows)
            finally:
                os.close(handle)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def _append(self, handle: int, rows: Sequence[Row]) -> None:
        size = os.fstat(handle).st_size
        end = os.pread(handle, size, 0).rfind(b"\n") + 1
        os.ftruncate(handle, end)
        text = StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        if not end:
            writer.writeheader()
        writer.writerows(row.to_dict() for row in rows)
        os.pwrite(handle, text.getvalue().encode(), end)
        os.fsync(handle)


def _lock(handle: int) -> None:
    """Wait until no other process adds; the lock goes with the handle."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover  (no such lock on Windows)
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
