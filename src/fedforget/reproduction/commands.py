"""Commands: what to type to measure again what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fedforget.reproduction import coverage
from fedforget.reproduction.row import Row
from fedforget.reproduction.studies import STUDIES, Choices
from fedforget.reproduction.summary import Group, Place, Summary

#: The data sets, models, shares of malicious users and number of seeds of a command.
Options = tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...], int]


def commands(summary: Summary, rows: Sequence[Row], study: str) -> list[str]:
    """The commands of a study: one, unless data sets differ in what was measured on them."""
    usual = coverage.expected(study, summary.rounds)
    where = [group.place for group in usual]
    ordinary = _named(where, where, len(Choices().seeds))
    found = _rows_of(summary, rows, study)
    by_choice: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
    for dataset in dict.fromkeys(row.cell.setting.dataset for row in found):
        some = [row for row in found if row.cell.setting.dataset == dataset]
        by_choice[_options(some, where, study)[1:]] += some
    return [_command(study, _options(some, where, study), ordinary, summary.rounds) for some in by_choice.values()]


def _rows_of(summary: Summary, rows: Sequence[Row], study: str) -> list[Row]:
    """The rows that show that a study was run."""
    where = coverage.storage_places(summary) if study == "storage" else coverage.places(summary, study)
    signs = {group for group in summary.groups if group.place in where and coverage.SIGNS[study](summary, group)}
    return [row for row in rows if Group.of(row.cell) in signs and (row.result.timing or not STUDIES[study].timed)]


def _options(rows: Sequence[Row], usual: Sequence[Place], study: str) -> Options:
    """What was chosen, given these rows; a study of logs takes the first seed whatever is chosen."""
    seeds = len(Choices().seeds) if study == "storage" else 1 + max(row.cell.setting.seed for row in rows)
    return _named([Place.of(row.cell.setting) for row in rows], usual, seeds)


def _named(places: Sequence[Place], usual: Sequence[Place], seeds: int) -> Options:
    """In the order in which the study has them by itself, then in the order of the rows."""
    every = [*usual, *places]
    datasets, models, shares = (
        list(dict.fromkeys(getattr(place, name) for place in every)) for name in ("dataset", "model", "malicious")
    )
    return (
        tuple(name for name in datasets if any(place.dataset == name for place in places)),
        tuple(name for name in models if any(place.model == name for place in places)),
        tuple(share for share in shares if any(place.malicious == share for place in places)),
        seeds,
    )


def _command(study: str, chosen: Options, usual: Options, rounds: int) -> str:
    words = ["fedforget reproduce", study]
    names = ("datasets", "models", "malicious")
    for name, values, by_itself in zip(names, chosen[:3], usual[:3], strict=True):
        if values != by_itself:
            words.append(f"--{name} {','.join(map(_written, values))}")
    if chosen[3] != usual[3]:
        words.append(f"--seeds {chosen[3]}")
    if rounds != Choices().rounds:
        words.append(f"--rounds {rounds}")
    return " ".join(words)


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
