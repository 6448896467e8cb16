"""Notes: what the page says around its tables: where the figures come from, how to read them, what is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from fedforget.reproduction import coverage, paper
from fedforget.reproduction.labels import METRICS, group_of, ordered, place_of, places_of
from fedforget.reproduction.row import Row
from fedforget.reproduction.studies import STUDIES, Choices
from fedforget.reproduction.summary import Place, Summary

FACTOR = paper.figure("speed", "ratio", speedup=0.1) or 0.0
ABOUT = {
    "table-1": (
        "HR@10 / NDCG@10 in percent, over those who stay, in both protocols, and the paper's figures. The second table "
        "of each pair gives the differences to Retrain: what a reproduction can compare, since the paper's protocol, "
        "γ, R and initialisation are not stated."
    ),
    "speed": (
        "Wall clock of unlearning, evaluation excluded, with nothing beside it; in brackets how many times as fast as "
        "Retrain in the same run. The paper prints one figure for all of its settings: its FRU is "
        f"{FACTOR:g}x as fast as Retrain."
    ),
    "alpha": (
        "The paper's FRU with fewer or more of the rows in its log. The paper shows curves without figures. For the "
        "peak the best of several α is held against α = 1, which chance alone favours: see by how much it is higher."
    ),
    "beta": "Plain training without an attack. The paper shows curves without figures.",
    "lambda": (
        "The share of the local epochs that a replayed round trains. Times only where they were measured with nothing "
        "beside them; the paper's are those of its machine."
    ),
    "storage": (
        "Mean bytes a device. The paper's formula, b·B·α(1 + βn)·|own items| rows, counts item rows only; everything "
        "counts what a log has to keep besides: which rows they are, the other tensors (NCF's perceptron), the private "
        "embedding, checksums. Its example is Steam-200k with 30 items a user."
    ),
}


def shown(rows: Sequence[Row]) -> list[Row]:
    """The rows that the page is about: measured under the settings of today, with the most rounds."""
    current = [row for row in rows if not _outdated(row)]
    most = max((row.cell.setting.rounds for row in current), default=0)
    return [row for row in current if row.cell.setting.rounds == most]


def _outdated(row: Row) -> bool:
    return row.result.settings != row.cell.fingerprint()


def origin(figures_in: str) -> str:
    """Where the section comes from."""
    return (
        "This section and its figures are written by `fedforget reproduce page` from the finished cells in "
        f"[cells.csv]({figures_in}cells.csv): change neither by hand. These commands measure them; a cell that is "
        "finished is not run again:"
    )


def provenance(rows: Sequence[Row]) -> str:
    """On how many cells, seeds and rounds the figures rest, and on which versions and machines."""
    seeds = sorted({row.cell.setting.seed for row in rows})
    days = sorted(row.result.finished[:10] for row in rows)
    cells, timed = {row.cell for row in rows}, {row.cell for row in rows if row.result.timing}
    facts = [
        f"{len(cells)} cells, {len(timed) or 'none'} of them timed",
        f"seeds {', '.join(map(str, seeds))}",
        f"{rows[0].cell.setting.rounds} rounds",
        f"fedforget {_distinct(row.result.version for row in rows)}",
        _distinct(row.result.software for row in rows),
        _distinct(row.result.machine for row in rows),
        f"finished {days[0]}" if days[0] == days[-1] else f"finished {days[0]} to {days[-1]}",
    ]
    reading = "Figures are mean ± sample standard deviation over seeds, where a seed also decides the split; without ± "
    return f"{'; '.join(facts)}. {reading}there is one seed."


def _distinct(values: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(values))


def typical(summary: Summary) -> str:
    """The spread that stands in where a group has a single seed."""
    known = [
        f"{name} {100 * summary.typical[metric]:.1f}" for metric, name in METRICS.items() if metric in summary.typical
    ]
    if not known:
        return "No cell has several seeds yet, so differences are taken as they are, without any tolerance."
    return (
        f"The typical standard deviations, in points: {', '.join(known)} (the root mean square over the groups with "
        "several seeds)."
    )


def gaps(summary: Summary, rows: Sequence[Row]) -> str:
    """What is missing to the paper's evaluation, study by study, and what is not shown."""
    lines = [line for study in STUDIES for line in _gaps_of(summary, study)]
    lines += _few_seeds(summary)
    old = sum(map(_outdated, rows))
    if old:
        lines.append(f"{old} results were measured under other settings than today's and are not shown.")
    fewer = len(rows) - old - len(shown(rows))
    if fewer:
        lines.append(f"{fewer} results with fewer rounds are not shown.")
    return "\n".join(f"- {line}" for line in lines) or "Nothing of the paper's evaluation is missing."


def _gaps_of(summary: Summary, study: str) -> list[str]:
    expected = coverage.expected(study, summary.rounds)
    wanted = ordered(group.place for group in expected)
    left: defaultdict[Place, list[str]] = defaultdict(list)
    for group in coverage.missing(summary, study, summary.rounds):
        left[group.place].append(group_of(group))
    whole = [place for place in wanted if len(left[place]) == sum(group.place == place for group in expected)]
    if len(whole) == len(wanted):
        return [f"{study}: all of it."]
    lines = [f"{study}: {places_of(whole, wanted)}."] if whole else []
    parts = [place for place in wanted if left[place] and place not in whole]
    return lines + [f"{study}, {place_of(place)}: {'; '.join(left[place])}." for place in parts]


def _few_seeds(summary: Summary) -> list[str]:
    """Where fewer seeds were run than planned."""
    planned = len(Choices().seeds)
    few: defaultdict[tuple[str, int], list[Place]] = defaultdict(list)
    for study in STUDIES:
        if study != "storage":
            metric = "seconds" if STUDIES[study].timed else "sampled_hr"
            for place in coverage.places(summary, study):
                seeds = _seeds_at(summary, study, place, metric)
                if seeds < planned:
                    few[study, seeds].append(place)
    return [
        f"{study}, {seeds} of {planned} seeds: {places_of(some, _all_places(summary, study))}."
        for (study, seeds), some in few.items()
    ]


def _all_places(summary: Summary, study: str) -> list[Place]:
    """Those of the paper, and those where a study was measured beside them."""
    usual = (group.place for group in coverage.expected(study, summary.rounds))
    return ordered([*usual, *coverage.places(summary, study)])


def _seeds_at(summary: Summary, study: str, place: Place, metric: str) -> int:
    """The fewest seeds of a study's groups at a place."""
    here = [group for group in summary.groups if group.place == place and coverage.SIGNS[study](summary, group)]
    return min(spread.seeds for group in here if (spread := summary.of(group, metric)) is not None)
