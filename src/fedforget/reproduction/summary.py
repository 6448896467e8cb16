"""Summary: what the finished cells say once the seeds of each are put together."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedforget.reproduction.cell import Cell, Setting, Treatment
from fedforget.reproduction.row import Row

#: What is summarised of every finished cell. Beside these come ``seconds`` and ``ratio`` of those that were timed.
ACCURACIES = ("sampled_hr", "sampled_ndcg", "full_hr", "full_ndcg", "full_recall")
SIZES = ("log_bytes", "log_rows_bytes", "log_dense_bytes", "formula_bytes", "item_table_bytes")
RETRAIN = Treatment("retrain")


@dataclass(frozen=True)
class Place:
    """Where something is measured: the data, the model, the share of malicious users and the rounds."""

    dataset: str
    model: str
    malicious: float
    rounds: int = 200

    @classmethod
    def of(cls, setting: Setting) -> Place:
        """That of a setting."""
        return cls(setting.dataset, setting.model, setting.malicious, setting.rounds)


@dataclass(frozen=True)
class Group:
    """A cell without its seed."""

    place: Place
    treatment: Treatment
    sampler: str = "mixed"
    beta: float = 0.5

    @classmethod
    def of(cls, cell: Cell) -> Group:
        """That of a cell."""
        return cls(Place.of(cell.setting), cell.treatment, cell.setting.sampler, cell.setting.beta)


@dataclass(frozen=True)
class Spread:
    """The mean over seeds, how many there are, and the sample standard deviation (None for a single one)."""

    mean: float
    deviation: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """That of one value a seed."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


class Summary:
    """Every metric of every group.

    A group with a single seed has no spread of its own. Where one is needed, the typical one of the metric stands in:
    the root mean square of the standard deviations of all groups that have several seeds.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        values: defaultdict[tuple[Group, str], list[float]] = defaultdict(list)
        for cell, metric, value in (*_figures(rows), *_times(rows)):
            values[Group.of(cell), metric].append(value)
        self._spreads = {key: Spread.of(found) for key, found in values.items()}
        self.groups = list(dict.fromkeys(group for group, _ in values))
        self.typical = _typical(self._spreads)

    @property
    def rounds(self) -> int:
        """How many rounds were trained: the most, if some cells have fewer."""
        return max((group.place.rounds for group in self.groups), default=200)

    def of(self, group: Group, metric: str) -> Spread | None:
        """A group's metric, or None where it was not measured."""
        return self._spreads.get((group, metric))

    def mean(self, group: Group, metric: str) -> float | None:
        """The mean alone."""
        spread = self.of(group, metric)
        return None if spread is None else spread.mean

    def deviation(self, group: Group, metric: str) -> float:
        """How far a group's seeds lie apart: its own standard deviation, else the typical one, else 0."""
        spread = self.of(group, metric)
        own = None if spread is None else spread.deviation
        return self.typical.get(metric, 0.0) if own is None else own

    def pooled(self, one: Group, other: Group, metric: str) -> float:
        """The standard deviation of two groups: the root mean square of theirs."""
        return _root_mean_square([self.deviation(one, metric), self.deviation(other, metric)])


def _figures(rows: Sequence[Row]) -> Iterable[tuple[Cell, str, float]]:
    """Accuracies and sizes, of each cell once even if it was timed as well."""
    once: dict[Cell, Row] = {}
    for row in sorted(rows, key=lambda row: bool(row.result.timing)):
        once.setdefault(row.cell, row)
    for row in rows:
        if once[row.cell] is row:
            for metric in (*ACCURACIES, *SIZES):
                yield row.cell, metric, getattr(row.result, metric)


def _times(rows: Sequence[Row]) -> Iterable[tuple[Cell, str, float]]:
    """Seconds of what was timed, and how often they fit into Retrain's of the same run; the mean if timed often."""
    timed = [row for row in rows if row.result.timing]
    reference = {
        (row.cell.setting, row.result.timing): row.result.seconds for row in timed if row.cell.treatment == RETRAIN
    }
    found: defaultdict[tuple[Cell, str], list[float]] = defaultdict(list)
    for row in timed:
        found[row.cell, "seconds"].append(row.result.seconds)
        retrain = reference.get((row.cell.setting, row.result.timing))
        if retrain is not None and row.result.seconds > 0:
            found[row.cell, "ratio"].append(retrain / row.result.seconds)
    for (cell, metric), values in found.items():
        yield cell, metric, statistics.fmean(values)


def _typical(spreads: dict[tuple[Group, str], Spread]) -> dict[str, float]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for (_, metric), spread in spreads.items():
        if spread.deviation is not None:
            found[metric].append(spread.deviation)
    return {metric: _root_mean_square(deviations) for metric, deviations in found.items()}


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value * value for value in values))
