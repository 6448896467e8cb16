"""Means and standard deviations over seeds, times within a run, and the paper's figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from fedforget.experiments.claims import judge
from fedforget.experiments.summary import paper_figures
from fedforget.experiments.variants import VARIANTS
from tests.experiments.made import ML_GCN, ML_NCF, Place, Row, as_frame, row, summary_of, timed


def find(rows: list[Row], way: str, metric: str, **where: Any) -> dict[str, Any] | None:
    found = summary_of(rows).filter(way=way, metric=metric, model="ncf", **where)
    return found.row(0, named=True) if found.height else None


def test_mean_and_sample_deviation_by_hand() -> None:
    rows = [row(ML_NCF, "retrain", hr, seed=seed) for seed, hr in enumerate((0.5, 0.6, 0.7))]
    found = find(rows, "retrain", "sampled_hr")
    assert found is not None
    assert found["mean"] == pytest.approx(0.6)
    assert found["std"] == pytest.approx(0.1)
    assert found["seeds"] == 3


def test_a_single_seed_has_no_spread_of_its_own() -> None:
    found = find([row(ML_NCF, "retrain", 0.6)], "retrain", "sampled_hr")
    assert found is not None
    assert (found["mean"], found["std"], found["seeds"], found["spread"]) == (0.6, None, 1, 0)


def test_the_typical_spread_is_the_root_mean_square_and_stands_in_for_single_seeds() -> None:
    """Two groups with deviations 0.03 and 0.04 times √2: √((0.03² + 0.04²) / 2 · 2) = 0.05."""
    rows = [
        *(row(ML_NCF, "retrain", 0.6 + shift, seed=seed) for seed, shift in enumerate((-0.03, 0.03))),
        *(row(ML_NCF, "attacked", 0.5 + shift, seed=seed) for seed, shift in enumerate((-0.04, 0.04))),
        row(ML_NCF, "fru-device", 0.6),
    ]
    device, retrain = find(rows, "fru-device", "sampled_hr"), find(rows, "retrain", "sampled_hr")
    assert device is not None
    assert retrain is not None
    assert device["spread"] == pytest.approx(0.05)
    assert retrain["spread"] == pytest.approx(0.03 * 2**0.5)
    (claim,) = [one for one in judge(summary_of(rows)) if one.text.startswith("FRU, device, is at least as good")]
    pooled = ((0.05**2 + 2 * 0.03**2) / 2) ** 0.5
    assert claim.checks.filter(metric="sampled_hr")["spread"].item() == pytest.approx(pooled)


def test_groups_are_experiments_without_their_seed() -> None:
    far = Place("ml-100k", "ncf", 0.1, rounds=20)
    rows = [
        row(ML_NCF, "retrain", 0.6, seed=0),
        row(ML_NCF, "retrain", 0.6, seed=1),
        row(far, "retrain", 0.6),
        row(ML_GCN, "retrain", 0.6),
        row(ML_NCF, "fru-device", 0.6, replay_fraction=0.5),
        row(ML_NCF, "retrain", 0.6, sampler="user"),
    ]
    found = summary_of(rows).filter(metric="sampled_hr")
    assert found.height == 5
    assert found["seeds"].to_list() == [2, 1, 1, 1, 1]
    assert found["std"][0] == 0


def test_an_experiment_that_was_timed_as_well_counts_once() -> None:
    plain = [row(ML_NCF, "retrain", hr, seed=seed) for seed, hr in enumerate((0.5, 0.7))]
    again = [plain[0] | {"timing": "a", "sampled_hr": 0.1}]
    for rows in ([*plain, *again], [*again, *plain]):
        found = find(rows, "retrain", "sampled_hr")
        assert found is not None
        assert (found["mean"], found["seeds"]) == (pytest.approx(0.6), 2)


def test_seconds_count_only_in_timed_runs() -> None:
    rows = [row(ML_NCF, "retrain", 0.6, seconds=50.0)]
    assert find(rows, "retrain", "seconds") is None
    assert find(rows, "retrain", "ratio") is None


def test_ratios_are_to_retrain_of_the_same_run() -> None:
    """Seed 0: 100 / 10; seed 1 on a machine half as fast: 200 / 25."""
    rows = [
        *timed(ML_NCF, {"retrain": 100.0, "fru-device": 10.0}, seed=0),
        *timed(ML_NCF, {"retrain": 200.0, "fru-device": 25.0}, seed=1),
    ]
    ratio, seconds = find(rows, "fru-device", "ratio"), find(rows, "fru-device", "seconds")
    retrain = find(rows, "retrain", "ratio")
    assert ratio is not None
    assert seconds is not None
    assert retrain is not None
    assert (ratio["mean"], ratio["std"]) == (pytest.approx(9.0), pytest.approx(2**0.5))
    assert seconds["mean"] == pytest.approx(17.5)
    assert (retrain["mean"], retrain["std"], retrain["seeds"]) == (1.0, 0.0, 2)


def test_times_of_different_runs_are_not_compared() -> None:
    rows = [
        *timed(ML_NCF, {"retrain": 100.0}, timing="monday"),
        *timed(ML_NCF, {"fru-device": 10.0}, timing="tuesday"),
    ]
    seconds = find(rows, "fru-device", "seconds")
    assert seconds is not None
    assert seconds["mean"] == 10
    assert find(rows, "fru-device", "ratio") is None


def test_an_experiment_that_was_timed_twice_is_still_one_seed() -> None:
    rows = [
        *timed(ML_NCF, {"retrain": 100.0, "fru-device": 10.0}, timing="monday"),
        *timed(ML_NCF, {"retrain": 100.0, "fru-device": 20.0}, timing="tuesday"),
    ]
    found = find(rows, "fru-device", "ratio")
    assert found is not None
    assert (found["mean"], found["std"], found["seeds"]) == (7.5, None, 1)


def test_an_empty_file_has_an_empty_summary() -> None:
    assert summary_of([]).height == 0
    assert as_frame([]).height == 0


def printed(study: str, metric: str, **where: Any) -> float | None:
    found = paper_figures(study).filter(pl.col(name).eq_missing(value) for name, value in where.items())
    values = found.filter(metric=metric)["value"].to_list()
    assert len(values) < 2
    return values[0] if values else None


def test_every_figure_of_the_paper_is_there_once() -> None:
    counts = {study: paper_figures(study).height for study in ("table-1", "speed", "lambda", "storage", "alpha")}
    assert counts == {"table-1": 2 * 2 * 2 * 5 * 2, "speed": 1, "lambda": 2 * 4 * 2, "storage": 2 * 2, "alpha": 0}
    for study in ("table-1", "speed", "lambda", "storage"):
        places = Counter(paper_figures(study).drop("value", "mean").rows())
        assert set(places.values()) == {1}


@pytest.mark.parametrize(
    ("dataset", "model", "malicious", "way", "metric", "value"),
    [
        ("ml-100k", "ncf", 0.1, "attacked", "hr", 55.34),
        ("ml-100k", "ncf", 0.2, "fru-all", "ndcg", 32.77),
        ("ml-100k", "lightgcn", 0.2, "fru-server", "ndcg", 31.53),
        ("steam-200k", "ncf", 0.2, "fedremove", "hr", 49.30),
        ("steam-200k", "lightgcn", 0.1, "retrain", "ndcg", 53.85),
        ("steam-200k", "lightgcn", 0.2, "fru-server", "hr", 93.79),
    ],
)
def test_table_1(dataset: str, model: str, malicious: float, way: str, metric: str, value: float) -> None:
    assert printed("table-1", metric, dataset=dataset, model=model, malicious=malicious, way=way) == value


def test_lambda_speed_and_storage() -> None:
    ncf = {"dataset": "ml-100k", "model": "ncf"}
    assert printed("lambda", "seconds", **ncf, malicious=0.1, **{"lambda": 0.75}) == 2270.61
    assert printed("lambda", "hr", **ncf, malicious=0.1, **{"lambda": 0.1}) == 58.43
    assert printed("speed", "ratio", **{"lambda": 0.1}) == 7
    assert printed("storage", "rows", dataset="steam-200k", model="ncf") == 900
    assert printed("storage", "share", dataset="steam-200k", model="lightgcn") == 8.75


def test_the_storage_figures_follow_from_the_papers_formula() -> None:
    """b · B · α(1 + βn) · 30 rows of 5,134."""
    for model, negatives in {"ncf": 4, "lightgcn": 1}.items():
        rows = 0.1 * 200 * 0.5 * (1 + 0.5 * negatives) * 30
        assert printed("storage", "rows", dataset="steam-200k", model=model) == rows
        share = printed("storage", "share", dataset="steam-200k", model=model)
        assert share == pytest.approx(100 * rows / 5134, abs=0.05)


def test_fru_at_its_own_lambda_is_the_same_in_both_tables() -> None:
    for model in ("ncf", "lightgcn"):
        place = {"dataset": "ml-100k", "model": model, "malicious": 0.1}
        once = printed("table-1", "hr", **place, way="fru-server")
        assert once == printed("lambda", "hr", **place, **{"lambda": 0.1})


def test_what_the_paper_does_not_print_is_none() -> None:
    assert printed("table-1", "hr", dataset="ml-100k", model="ncf", malicious=0.1, way="fru-device") is None
    assert printed("table-1", "hr", dataset="ml-1m", model="ncf", malicious=0.1) is None


def test_variants_have_our_names() -> None:
    ways = {way for study in ("table-1", "speed", "lambda", "storage") for way in paper_figures(study)["way"]}
    assert ways <= set(VARIANTS)
