"""Means and spreads over seeds, and times that are only compared within a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.summary import Group, Place, Spread, Summary
from tests.reproduction.made import ML_GCN, ML_NCF, row, timed

RETRAIN, DEVICE = Group(ML_NCF, Treatment("retrain")), Group(ML_NCF, Treatment("fru-device"))


def test_mean_and_sample_deviation_by_hand() -> None:
    rows = [row(ML_NCF, "retrain", hr, seed=seed) for seed, hr in enumerate((0.5, 0.6, 0.7))]
    found = Summary(rows).of(RETRAIN, "sampled_hr")
    assert found is not None
    assert found.mean == pytest.approx(0.6)
    assert found.deviation == pytest.approx(0.1)
    assert found.seeds == 3


def test_a_single_seed_has_no_spread_of_its_own() -> None:
    summary = Summary([row(ML_NCF, "retrain", 0.6)])
    assert summary.of(RETRAIN, "sampled_hr") == Spread(0.6, None, 1)
    assert summary.typical == {}
    assert summary.deviation(RETRAIN, "sampled_hr") == 0


def test_the_typical_spread_is_the_root_mean_square_and_stands_in_for_single_seeds() -> None:
    """Two groups with deviations 0.03 and 0.04 times √2: √((0.03² + 0.04²) / 2 · 2) = 0.05."""
    rows = [
        *(row(ML_NCF, "retrain", 0.6 + shift, seed=seed) for seed, shift in enumerate((-0.03, 0.03))),
        *(row(ML_NCF, "attacked", 0.5 + shift, seed=seed) for seed, shift in enumerate((-0.04, 0.04))),
        row(ML_NCF, "fru-device", 0.6),
    ]
    summary = Summary(rows)
    assert summary.typical["sampled_hr"] == pytest.approx(0.05)
    assert summary.deviation(DEVICE, "sampled_hr") == pytest.approx(0.05)
    assert summary.deviation(RETRAIN, "sampled_hr") == pytest.approx(0.03 * 2**0.5)
    pooled = ((0.05**2 + 2 * 0.03**2) / 2) ** 0.5
    assert summary.pooled(RETRAIN, DEVICE, "sampled_hr") == pytest.approx(pooled)


def test_groups_are_cells_without_their_seed() -> None:
    far = Place("ml-100k", "ncf", 0.1, rounds=20)
    rows = [
        row(ML_NCF, "retrain", 0.6, seed=0),
        row(ML_NCF, "retrain", 0.6, seed=1),
        row(far, "retrain", 0.6),
        row(ML_GCN, "retrain", 0.6),
        row(ML_NCF, Treatment("fru-device", speedup=0.5), 0.6),
        row(ML_NCF, "retrain", 0.6, sampler="user"),
    ]
    summary = Summary(rows)
    assert len(summary.groups) == 5
    assert summary.of(RETRAIN, "sampled_hr") == Spread(0.6, 0.0, 2)
    assert summary.rounds == 200


def test_a_cell_that_was_timed_as_well_counts_once() -> None:
    plain = [row(ML_NCF, "retrain", hr, seed=seed) for seed, hr in enumerate((0.5, 0.7))]
    again = [replace(one, result=replace(one.result, timing="a", sampled_hr=0.1)) for one in plain[:1]]
    for rows in ([*plain, *again], [*again, *plain]):
        found = Summary(rows).of(RETRAIN, "sampled_hr")
        assert found is not None
        assert (found.mean, found.seeds) == (pytest.approx(0.6), 2)


def test_seconds_count_only_where_nothing_ran_beside() -> None:
    summary = Summary([row(ML_NCF, "retrain", 0.6, seconds=50.0)])
    assert summary.of(RETRAIN, "seconds") is None
    assert summary.of(RETRAIN, "ratio") is None


def test_ratios_are_to_retrain_of_the_same_run() -> None:
    """Seed 0: 100 / 10; seed 1 on a machine half as fast: 200 / 25."""
    rows = [
        *timed(ML_NCF, {"retrain": 100.0, "fru-device": 10.0}, seed=0),
        *timed(ML_NCF, {"retrain": 200.0, "fru-device": 25.0}, seed=1),
    ]
    summary = Summary(rows)
    ratio, seconds = summary.of(DEVICE, "ratio"), summary.of(DEVICE, "seconds")
    assert ratio is not None
    assert seconds is not None
    assert (ratio.mean, ratio.deviation) == (pytest.approx(9.0), pytest.approx(2**0.5))
    assert seconds.mean == pytest.approx(17.5)
    assert summary.of(RETRAIN, "ratio") == Spread(1.0, 0.0, 2)


def test_times_of_different_runs_are_not_compared() -> None:
    rows = [
        *timed(ML_NCF, {"retrain": 100.0}, timing="monday"),
        *timed(ML_NCF, {"fru-device": 10.0}, timing="tuesday"),
    ]
    summary = Summary(rows)
    assert summary.mean(DEVICE, "seconds") == 10
    assert summary.of(DEVICE, "ratio") is None


def test_a_cell_that_was_timed_twice_is_still_one_seed() -> None:
    rows = [
        *timed(ML_NCF, {"retrain": 100.0, "fru-device": 10.0}, timing="monday"),
        *timed(ML_NCF, {"retrain": 100.0, "fru-device": 20.0}, timing="tuesday"),
    ]
    assert Summary(rows).of(DEVICE, "ratio") == Spread(7.5, None, 1)
