"""Results: the finished experiments, in a CSV file with one line each.

Several processes may append to one file. An incomplete last line, left by a killed process, is ignored and removed
before the next line is appended.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from io import FileIO, StringIO
from pathlib import Path
from typing import Any

import polars as pl

from fedforget.errors import DataError
from fedforget.experiments.experiment import Experiment
from fedforget.runtime.files import cannot_write, make_folder

#: The columns that identify an experiment.
EXPERIMENT = {
    "dataset": pl.String,
    "model": pl.String,
    "malicious": pl.Float64,
    "seed": pl.Int64,
    "rounds": pl.Int64,
    "sampler": pl.String,
    "beta": pl.Float64,
    "way": pl.String,
    "alpha": pl.Float64,
    "selection": pl.String,
    "speedup": pl.Float64,
}
ACCURACIES = ["sampled_hr", "sampled_ndcg", "full_hr", "full_ndcg", "full_recall"]
SIZES = ["log_bytes", "log_rows_bytes", "log_dense_bytes", "formula_bytes", "item_table_bytes"]
#: All columns. ``seconds`` is the wall time of unlearning (of training for "attacked"). ``timing`` identifies the run
#: in which it was measured without other load, and is empty otherwise. ``settings`` is the fingerprint.
SCHEMA: dict[str, Any] = (
    EXPERIMENT
    | dict.fromkeys([*ACCURACIES, "seconds"], pl.Float64)
    | {"timing": pl.String}
    | dict.fromkeys(SIZES, pl.Float64)
    | dict.fromkeys(["settings", "version", "software", "machine", "finished"], pl.String)
)


class Results:
    """A file of finished experiments."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def frame(self) -> pl.DataFrame:
        """The latest result of every experiment; results of timed runs are kept beside it."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        if not complete:
            return pl.DataFrame(schema=SCHEMA)
        raw = pl.read_csv(StringIO(complete), infer_schema=False)
        return self._parse(raw).unique([*EXPERIMENT, "timing"], keep="last", maintain_order=True)

    def missing(self, experiments: Iterable[Experiment], *, timed: bool = False) -> list[Experiment]:
        """The experiments without a (timed) result under the current settings."""
        frame = self.frame().filter(pl.col("timing") != "") if timed else self.frame()
        done = {(Experiment.from_columns(row), row["settings"]) for row in frame.iter_rows(named=True)}
        return [one for one in dict.fromkeys(experiments) if (one, one.fingerprint()) not in done]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append finished experiments in one write."""
        make_folder(self.path.parent, private=False)
        text = StringIO()
        writer = csv.DictWriter(text, SCHEMA, lineterminator="\n")
        try:
            with self.path.open("a+b", buffering=0) as file:
                _lock(file)
                file.seek(0)
                end = file.read().rfind(b"\n") + 1
                file.truncate(end)
                if not end:
                    writer.writeheader()
                writer.writerows(map(as_text, rows))
                file.write(text.getvalue().encode())
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def _parse(self, raw: pl.DataFrame) -> pl.DataFrame:
        for name in SCHEMA:
            if name not in raw.columns:
                problem = f"{self.path}: the column {name} is missing."
                raise DataError(problem, f"The file needs the columns {', '.join(SCHEMA)}.")
        texts = raw.select(*SCHEMA).with_columns(pl.exclude("alpha", "selection", "speedup").fill_null(""))
        frame = texts.with_columns(pl.col(name).cast(kind, strict=False) for name, kind in SCHEMA.items())
        for name in SCHEMA:
            for place in (texts[name].is_not_null() & frame[name].is_null()).arg_true():
                problem = f"{self.path}, line {place + 2}: {name} is {texts[name][place]!r}, not a number."
                raise DataError(problem, "Remove that line; the experiment is then run again.")
        return frame


def as_text(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as it is written: numbers with six digits, missing values empty."""
    values = {name: row[name] for name in SCHEMA}
    return {n: "" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for n, v in values.items()}


def _lock(file: FileIO) -> None:
    """Wait for other writers; the lock is released when the file is closed."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover  (Windows)
        return
    fcntl.flock(file, fcntl.LOCK_EX)
