"""Row: a finished cell with its figures, as one line of a CSV file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from fedforget.errors import DataError
from fedforget.experiments.outcome import Outcome
from fedforget.reproduction.cell import Cell, Setting, Treatment


@dataclass(frozen=True)
class Result:
    """What came out of a cell.

    Accuracies are shares, over those who stay. ``seconds`` is the wall clock of unlearning (of training, where nothing
    is unlearned); ``timing`` names the run in which it was measured with nothing beside it, and is empty where other
    work may have run at the same time. The logs are in mean bytes a device: see ``LogSize``. ``settings`` is the cell's
    fingerprint at the time.
    """

    sampled_hr: float
    sampled_ndcg: float
    full_hr: float
    full_ndcg: float
    full_recall: float
    seconds: float
    timing: str
    log_bytes: float
    log_rows_bytes: float
    log_dense_bytes: float
    formula_bytes: float
    item_table_bytes: float
    settings: str
    version: str
    software: str
    machine: str
    finished: str


@dataclass(frozen=True)
class Row:
    """A cell and its result."""

    cell: Cell
    result: Result

    def to_dict(self) -> dict[str, str]:
        """As a line of the file: numbers in six digits, what is not set empty."""
        parts = (self.cell.setting, self.cell.treatment, self.result)
        return {name: _written(value) for part in parts for name, value in asdict(part).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> Row:
        """Read back what ``to_dict`` gave."""
        setting, treatment, result = (_read(kind, values) for kind in (Setting, Treatment, Result))
        return cls(Cell(setting, treatment), result)


COLUMNS = [field.name for kind in (Setting, Treatment, Result) for field in fields(kind)]


def figures(outcome: Outcome) -> dict[str, float]:
    """An outcome's figures by their columns."""
    sampled, full, log = outcome.accuracy.sampled, outcome.accuracy.full, outcome.log
    return {
        "sampled_hr": sampled["hr"],
        "sampled_ndcg": sampled["ndcg"],
        "full_hr": full["hr"],
        "full_ndcg": full["ndcg"],
        "full_recall": full["recall"],
        "log_bytes": log.total,
        "log_rows_bytes": log.rows,
        "log_dense_bytes": log.dense,
        "formula_bytes": log.formula,
        "item_table_bytes": log.item_table,
    }


def _written(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _read(kind: Any, values: Mapping[str, str]) -> Any:
    hints = get_type_hints(kind)
    return kind(**{name: _parsed(name, values.get(name), hints[name]) for name in hints})


def _parsed(name: str, text: str | None, hint: Any) -> Any:
    """One value; empty is None where that may be."""
    if text is None:
        raise DataError(f"The column {name} is missing.", f"A file of cells has the columns {', '.join(COLUMNS)}.")
    if hint in (str, int, float):
        number = hint
    else:
        number = next(kind for kind in hint.__args__ if kind is not type(None))
        if not text:
            return None
    try:
        return number(text)
    except ValueError:
        raise DataError(f"{name} is {text!r}, not a number.", "Remove that line: its cell is then run again.") from None
