"""Made-up finished cells, whose right verdict is visible by eye."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import fedforget as ff
from fedforget.reproduction.cell import Cell, Setting, Treatment
from fedforget.reproduction.row import Result, Row
from fedforget.reproduction.studies import STUDIES, Choices
from fedforget.reproduction.summary import Group, Place

#: Two places are enough for most tests.
ML_NCF = Place("ml-100k", "ncf", 0.1)
ML_GCN = Place("ml-100k", "lightgcn", 0.1)
STEAM_NCF = Place("steam-200k", "ncf", 0.1)
PAPER_PLACES = [
    Place(dataset, model, malicious)
    for dataset, model, malicious in product(("ml-100k", "steam-200k"), ("ncf", "lightgcn"), (0.1, 0.2))
]
#: HR as in a world where all of the paper's claims hold.
GOOD = {
    "attacked": 0.50, "continue": 0.55, "fedremove": 0.45, "retrain": 0.60, "retrain-condensed": 0.60,
    "fru-all": 0.61, "fru-server": 0.62, "fru-device": 0.63, "fru-logged": 0.64,
}  # fmt: skip
#: Seconds in such a world, and one in which our ways are as fast as they should be.
SECONDS = {
    "attacked": 100.0, "continue": 10.0, "fedremove": 5.0, "retrain": 100.0, "retrain-condensed": 90.0,
    "fru-all": 13.0, "fru-server": 12.5, "fru-device": 10.0, "fru-logged": 6.25,
}  # fmt: skip


def row(
    place: Place,
    way: str | Treatment,
    hr: float,
    *,
    seed: int = 0,
    sampler: str = "mixed",
    beta: float = 0.5,
    **result: float | str,
) -> Row:
    """A finished cell: NDCG is half of HR, the full protocol a tenth below the sampled one, unless said otherwise."""
    treatment = Treatment(way) if isinstance(way, str) else way
    setting = Setting(place.dataset, place.model, place.malicious, seed, place.rounds, sampler, beta)
    cell = Cell(setting, treatment)
    figures = Result(
        sampled_hr=hr, sampled_ndcg=hr / 2, full_hr=hr - 0.1, full_ndcg=hr / 2 - 0.1, full_recall=hr / 4,
        seconds=1.0, timing="", log_bytes=60_000.0, log_rows_bytes=45_000.0, log_dense_bytes=5_000.0,
        formula_bytes=45_000.0, item_table_bytes=400_000.0, settings=cell.fingerprint(), version="0.0",
        machine="made up", software="python 3", finished="2026-01-02T03:04:05+00:00",
    )  # fmt: skip
    return Row(cell, replace(figures, **result))  # type: ignore[arg-type]


def recovered(place: Place, hr: Mapping[str, float] = GOOD, *, seeds: Mapping[int, float] | None = None) -> list[Row]:
    """The ways of table 1 at a place; ``seeds`` adds something to all of them, seed by seed."""
    shifts = {0: 0.0} if seeds is None else seeds
    return [row(place, way, value + shift, seed=seed) for seed, shift in shifts.items() for way, value in hr.items()]


def timed(place: Place, seconds: Mapping[str, float] = SECONDS, *, seed: int = 0, timing: str = "") -> list[Row]:
    """The ways of table 1 with their times, measured in one run."""
    run = timing or f"run{seed}"
    return [row(place, way, GOOD[way], seed=seed, seconds=value, timing=run) for way, value in seconds.items()]


def whole_study(study: str, hr: Callable[[Group], float], seeds: int = 3, **result: float | str) -> list[Row]:
    """Every cell of a study as in the paper, with an HR for each group that grows a little with the seed."""
    rows = []
    for cell in STUDIES[study].cells(Choices(seeds=range(seeds))):
        group, setting = Group.of(cell), cell.setting
        rows.append(
            row(
                group.place, cell.treatment, hr(group) + 0.001 * setting.seed, seed=setting.seed,
                sampler=setting.sampler, beta=setting.beta, **result,
            )
        )  # fmt: skip
    return rows


def everything() -> list[Row]:
    """All studies of the paper, with different figures in every place."""

    def accuracy(group: Group) -> float:
        place = group.place
        level = 0.02 * PAPER_PLACES.index(place) if place in PAPER_PLACES else 0.1
        treatment, penalty = group.treatment, {"random": 0.02, "user": 0.01, "item": 0.005, "mixed": 0.0}
        alpha = 0.0 if treatment.alpha is None else 0.03 * abs(treatment.alpha - 0.5)
        drawn = 0.01 if treatment.selection == "random" else 0.0
        longer = 0.0 if treatment.speedup is None else 0.05 * treatment.speedup
        return GOOD[treatment.way] + level - alpha - drawn - longer - penalty[group.sampler] * (1.2 - group.beta)

    rows = {row.cell: row for study in STUDIES for row in whole_study(study, accuracy)}
    times = [one for place in PAPER_PLACES for seed in range(2) for one in timed(place, _drifting(seed), seed=seed)]
    return [*rows.values(), *times, *_timed_lambdas(accuracy)]


def _drifting(seed: int) -> dict[str, float]:
    return {way: seconds * (1 + 0.1 * seed) for way, seconds in SECONDS.items()}


def _timed_lambdas(accuracy: Callable[[Group], float]) -> list[Row]:
    """The times of the λ study, in runs of their own: 5 seconds and what the epochs take."""
    timed_rows = []
    for one in whole_study("lambda", accuracy):
        share = getattr(one.cell.treatment.resolve().method, "speedup", 1.0)
        result = replace(one.result, seconds=100 * share + 5, timing=f"lambda {one.cell.setting.key}")
        timed_rows.append(replace(one, result=result))
    return timed_rows


def small_file(path: Path) -> Path:
    """A few interactions in a file: a data set by its path."""
    users, items = ff.synthetic(users=40, items=60, mean_items=12).pairs()
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in zip(users, items, strict=True)))
    return path
