"""Synthetic results whose right verdict is visible by eye."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

import fedforget as ff
from fedforget.experiments.experiment import Experiment, Setting
from fedforget.experiments.results import SCHEMA
from fedforget.experiments.studies import STUDIES, Choices
from fedforget.experiments.summary import summarize

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A setting without its seed."""

    dataset: str
    model: str
    malicious: float
    rounds: int = 200

    def setting(self, seed: int = 0, sampler: str = "mixed", beta: float = 0.5) -> Setting:
        return Setting(self.dataset, self.model, self.malicious, seed, self.rounds, sampler, beta)


#: Two places are enough for most tests.
ML_NCF = Place("ml-100k", "ncf", 0.1)
ML_GCN = Place("ml-100k", "lightgcn", 0.1)
STEAM_NCF = Place("steam-200k", "ncf", 0.1)
PAPER_PLACES = [
    Place(dataset, model, malicious)
    for dataset, model, malicious in product(("ml-100k", "steam-200k"), ("ncf", "lightgcn"), (0.1, 0.2))
]
#: HR for which all claims of the paper hold.
GOOD = {
    "attacked": 0.50,
    "continue": 0.55,
    "fedremove": 0.45,
    "retrain": 0.60,
    "retrain-condensed": 0.60,
    "fru-all": 0.61,
    "fru-server": 0.62,
    "fru-device": 0.63,
    "fru-logged": 0.64,
}
#: Seconds for which all claims hold.
SECONDS = {
    "attacked": 100.0,
    "continue": 10.0,
    "fedremove": 5.0,
    "retrain": 100.0,
    "retrain-condensed": 90.0,
    "fru-all": 13.0,
    "fru-server": 12.5,
    "fru-device": 10.0,
    "fru-logged": 6.25,
}


def as_frame(rows: list[Row]) -> pl.DataFrame:
    """Rows as the results file gives them."""
    return pl.DataFrame(rows, SCHEMA, orient="row")


def summary_of(rows: list[Row]) -> pl.DataFrame:
    return summarize(as_frame(rows))


def row(
    place: Place, variant: str, hr: float, *, seed: int = 0, sampler: str = "mixed", beta: float = 0.5, **changes: Any
) -> Row:
    """A result: NDCG is half of HR, the full protocol a tenth below the sampled one, unless given otherwise.

    ``alpha``, ``selection`` and ``replay_fraction`` change the variant.
    """
    own = {name: changes.pop(name, None) for name in ("alpha", "selection", "replay_fraction")}
    return result(Experiment(place.setting(seed, sampler, beta), variant, **own), hr, **changes)


def result(experiment: Experiment, hr: float, **changes: Any) -> Row:
    return {
        **experiment.columns(),
        "sampled_hr": hr,
        "sampled_ndcg": hr / 2,
        "full_hr": hr - 0.1,
        "full_ndcg": hr / 2 - 0.1,
        "full_recall": hr / 4,
        "seconds": 1.0,
        "timing": "",
        "log_bytes": 60_000.0,
        "log_rows_bytes": 45_000.0,
        "log_dense_bytes": 5_000.0,
        "formula_bytes": 45_000.0,
        "item_table_bytes": 400_000.0,
        "settings": experiment.fingerprint(),
        "version": "0.0",
        "software": "python 3",
        "machine": "made up",
        "finished": "2026-01-02T03:04:05+00:00",
        **changes,
    }


def recovered(place: Place, hr: Mapping[str, float] = GOOD, *, seeds: Mapping[int, float] | None = None) -> list[Row]:
    """The variants of table 1 at a place; ``seeds`` adds a value to all of them, by seed."""
    shifts = {0: 0.0} if seeds is None else seeds
    return [row(place, way, value + shift, seed=seed) for seed, shift in shifts.items() for way, value in hr.items()]


def timed(place: Place, seconds: Mapping[str, float] = SECONDS, *, seed: int = 0, timing: str = "") -> list[Row]:
    """The variants of table 1 with their times, measured in one run."""
    run = timing or f"run{seed}"
    return [row(place, way, GOOD[way], seed=seed, seconds=value, timing=run) for way, value in seconds.items()]


def whole_study(study: str, hr: Callable[[Experiment], float], **changes: Any) -> list[Row]:
    """Every experiment of a study as in the paper, with an HR that grows a little with the seed."""
    experiments = STUDIES[study].experiments(Choices())
    return [result(one, hr(one) + 0.001 * one.setting.seed, **changes) for one in experiments]


def everything() -> list[Row]:
    """All studies of the paper, with different figures at every place."""

    def accuracy(one: Experiment) -> float:
        setting = one.setting
        place = Place(setting.dataset, setting.model, setting.malicious)
        level = 0.02 * PAPER_PLACES.index(place) if place in PAPER_PLACES else 0.1
        penalty = {"random": 0.02, "user": 0.01, "item": 0.005, "mixed": 0.0}[setting.sampler]
        alpha = 0.0 if one.alpha is None else 0.03 * abs(one.alpha - 0.5)
        drawn = 0.01 if one.selection == "random" else 0.0
        longer = 0.0 if one.replay_fraction is None else 0.05 * one.replay_fraction
        return GOOD[one.variant] + level - alpha - drawn - longer - penalty * (1.2 - setting.beta)

    rows = {Experiment.from_columns(row): row for study in STUDIES for row in whole_study(study, accuracy)}
    times = [one for place in PAPER_PLACES for seed in range(2) for one in timed(place, _drifting(seed), seed=seed)]
    return [*rows.values(), *times, *_timed_lambdas(accuracy)]


def _drifting(seed: int) -> dict[str, float]:
    return {way: seconds * (1 + 0.1 * seed) for way, seconds in SECONDS.items()}


def _timed_lambdas(accuracy: Callable[[Experiment], float]) -> list[Row]:
    """The times of the λ study, in runs of their own: 5 seconds and what the epochs take."""
    rows = []
    for one in STUDIES["lambda"].experiments(Choices()):
        share = getattr(one.resolve().method, "replay_fraction", 1.0)
        hr = accuracy(one) + 0.001 * one.setting.seed
        rows.append(result(one, hr, seconds=100 * share + 5, timing=f"lambda {one.setting.key}"))
    return rows


def with_seed(row: Row, seed: int) -> Row:
    """The same result for another seed."""
    one = Experiment.from_columns(row)
    one = replace(one, setting=replace(one.setting, seed=seed))
    return row | one.columns() | {"settings": one.fingerprint()}


def small_file(path: Path) -> Path:
    """A few interactions in a file: a data set by its path."""
    users, items = ff.synthetic(users=40, items=60, mean_items=12).pairs()
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in zip(users, items, strict=True)))
    return path
