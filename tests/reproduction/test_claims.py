"""Verdicts on made-up cells, where the right one is visible by eye."""

from __future__ import annotations

import pytest

from fedforget.reproduction import claims
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.claims import FAILS, HOLDS, IN_PART, UNKNOWN, Claim
from fedforget.reproduction.row import Row
from fedforget.reproduction.studies import ALPHAS, BETAS, LAMBDAS, selected
from fedforget.reproduction.summary import Place, Summary
from tests.reproduction.made import (
    GOOD,
    ML_GCN,
    ML_NCF,
    PAPER_PLACES,
    SECONDS,
    STEAM_NCF,
    everything,
    recovered,
    row,
    timed,
)

RECOVERS = "FRU is at least as good as Retrain in every setting"
PLAIN = Place("ml-100k", "ncf", 0.0)


def claim(rows: list[Row], text: str) -> Claim:
    (found,) = [one for one in claims.judge(Summary(rows)) if one.text.startswith(text)]
    return found


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([], UNKNOWN), ([True], HOLDS), ([False], FAILS), ([True, False], IN_PART), ([True] + 4 * [False], IN_PART),
        ([True] + 5 * [False], FAILS), (7 * [True] + 28 * [False], IN_PART),
    ],
)  # fmt: skip
def test_the_rule(outcomes: list[bool], verdict: str) -> None:
    assert claims.verdict(outcomes) == verdict


def test_above_retrain_everywhere_holds() -> None:
    found = claim([one for place in PAPER_PLACES for one in recovered(place)], RECOVERS)
    assert found.verdict == HOLDS
    assert found.evidence == (
        "16 of 16 checks hold, in the full protocol 16 of 16, in the paper's own table 13 of 16."
    )  # fmt: skip


def test_one_place_below_holds_in_part_and_is_named() -> None:
    rows = [one for place in PAPER_PLACES[1:] for one in recovered(place)]
    found = claim(rows + recovered(PAPER_PLACES[0], {**GOOD, "fru-server": 0.57}), RECOVERS)
    assert found.verdict == IN_PART
    assert found.evidence.startswith("14 of 16 checks hold, in the full protocol 14 of 16")
    assert "Not: HR in MovieLens-100k, Fed-NCF, 10%, by 3.0 points" in found.evidence
    assert "NDCG in MovieLens-100k, Fed-NCF, 10%, by 1.5 points" in found.evidence


def test_below_everywhere_does_not_hold() -> None:
    rows = [one for place in PAPER_PLACES for one in recovered(place, {**GOOD, "fru-server": 0.57})]
    found = claim(rows, RECOVERS)
    assert found.verdict == FAILS
    assert found.evidence.startswith("0 of 16")
    assert "and 14 more" in found.evidence


def test_the_protocols_are_counted_apart() -> None:
    rows = [
        row(ML_NCF, "retrain", 0.6),
        row(ML_NCF, "fru-server", 0.62, full_hr=0.4, full_ndcg=0.1),
    ]
    found = claim(rows, RECOVERS)
    assert found.verdict == HOLDS
    assert found.evidence.startswith("2 of 2 checks hold, in the full protocol 0 of 2")


@pytest.mark.parametrize(("fru", "verdict"), [(0.595, HOLDS), (0.58, FAILS)])
def test_within_one_standard_deviation_counts_as_at_least_as_good(fru: float, verdict: str) -> None:
    """Both ways have seeds at ± 0.01, a standard deviation of 0.014."""
    seeds = {0: -0.01, 1: 0.01}
    assert claim(recovered(ML_NCF, {"retrain": 0.6, "fru-server": fru}, seeds=seeds), RECOVERS).verdict == verdict


@pytest.mark.parametrize(("fru", "verdict"), [(0.595, HOLDS), (0.58, FAILS)])
def test_a_single_seed_borrows_the_typical_spread(fru: float, verdict: str) -> None:
    others = recovered(ML_GCN, {"attacked": 0.5}, seeds={0: -0.01, 1: 0.01})
    rows = recovered(ML_NCF, {"retrain": 0.6, "fru-server": fru})
    assert claim(rows, RECOVERS).verdict == FAILS
    assert claim(rows + others, RECOVERS).verdict == verdict


def test_above_is_strict_whatever_the_spread() -> None:
    seeds = {0: -0.05, 1: 0.05}
    even = claim(recovered(ML_NCF, {"fedremove": 0.6, "fru-server": 0.6}, seeds=seeds), "FRU is above FedRemove")
    assert even.verdict == FAILS
    higher = claim(recovered(ML_NCF, {"fedremove": 0.6, "fru-server": 0.61}, seeds=seeds), "FRU is above FedRemove")
    assert higher.verdict == HOLDS
    assert "2 of 2 checks hold (0 by more than one standard deviation)" in higher.evidence


@pytest.mark.parametrize(
    ("text", "worse"),
    [
        ("FRU is above FedRemove", {"fedremove": 0.63}),
        ("FRU is above Attacked", {"attacked": 0.63}),
        ("FedRemove does not recover", {"fedremove": 0.61}),
        ("With importance-based update selection", {"fru-all": 0.63}),
        ("FRU, device, is at least as good", {"fru-device": 0.55}),
        ("FRU, logged, is at least as good", {"fru-logged": 0.55}),
    ],
)
def test_every_claim_of_table_1_can_fail(text: str, worse: dict[str, float]) -> None:
    assert claim(recovered(ML_NCF), text).verdict == HOLDS
    assert claim(recovered(ML_NCF, {**GOOD, **worse}), text).verdict == FAILS


def test_our_claims_are_marked_and_have_nothing_of_the_papers_beside() -> None:
    found = [one for one in claims.judge(Summary(recovered(ML_NCF))) if one.ours]
    assert {one.study for one in found} == {"table-1", "speed", "storage"}
    assert not any("the paper's own table" in one.evidence for one in found)


def test_missing_settings_are_named() -> None:
    found = claim(recovered(ML_NCF) + recovered(ML_GCN), RECOVERS)
    missing = "Not measured: MovieLens-100k, Fed-NCF, 20%; MovieLens-100k, Fed-LightGCN, 20%; Steam-200k."
    assert found.evidence.endswith(missing)


def test_a_place_without_one_of_the_two_ways_is_missing_too() -> None:
    rows = [*recovered(ML_NCF), row(STEAM_NCF, "retrain", 0.6)]
    found = claim(rows, RECOVERS)
    assert found.evidence.startswith("2 of 2")
    assert "Steam-200k" in found.evidence


def test_nothing_measured_is_said_so() -> None:
    verdicts = {one.text: one.verdict for one in claims.judge(Summary([row(ML_NCF, "continue", 0.5)]))}
    assert set(verdicts.values()) == {UNKNOWN}
    assert len(verdicts) == 22


def test_speed() -> None:
    rows = timed(ML_NCF) + timed(ML_GCN, {**SECONDS, "fru-server": 50.0, "fru-device": 12.0})
    factor = claim(rows, "FRU is 7x as fast")
    assert factor.verdict == IN_PART
    ends = "From 2.0x (MovieLens-100k, Fed-LightGCN, 10%) to 8.0x (MovieLens-100k, Fed-NCF, 10%)"
    assert factor.evidence.startswith(f"{ends}; 1 of 2 settings reach 7x.")
    assert claim(rows, "FRU, device, is 9x as fast").verdict == IN_PART
    assert claim(rows, "FedRemove is the fastest").verdict == HOLDS
    assert claim(rows, "FRU is a little faster").verdict == IN_PART


def test_fedremove_is_compared_with_the_papers_methods_and_beside_it_with_ours() -> None:
    found = claim(timed(ML_NCF, {**SECONDS, "fru-logged": 1.0}), "FedRemove is the fastest")
    assert found.verdict == HOLDS
    assert "1 of 1 checks hold. Compared with the paper's methods; with ours as well, 0 of 1." in found.evidence


def test_times_that_were_not_measured_alone_prove_nothing() -> None:
    assert claim(recovered(ML_NCF), "FRU is 7x as fast").verdict == UNKNOWN


def alphas(importance: dict[float, float], random: dict[float, float]) -> list[Row]:
    chosen = [row(ML_NCF, selected(alpha, "importance"), hr) for alpha, hr in importance.items()]
    return chosen + [row(ML_NCF, selected(alpha, "random"), hr) for alpha, hr in random.items()]


def test_alpha() -> None:
    hill = {alpha: 0.6 - abs(alpha - 0.5) / 10 for alpha in ALPHAS}
    lower = {alpha: hr - 0.01 for alpha, hr in hill.items() if alpha < 1}
    rows = alphas(hill, lower)
    assert claim(rows, "Importance beats random").verdict == HOLDS
    assert claim(rows, "Importance beats random").evidence.startswith("10 of 10 checks hold")
    assert claim(rows, "The accuracy has its peak").verdict == HOLDS
    upward = alphas({alpha: 0.5 + alpha / 10 for alpha in ALPHAS}, lower)
    assert claim(upward, "The accuracy has its peak").verdict == FAILS
    assert "best at α = 0.9" in claim(upward, "The accuracy has its peak").evidence
    one_higher = alphas(hill, {**lower, 0.3: 0.9})
    assert claim(one_higher, "Importance beats random").verdict == IN_PART
    assert "α = 0.3" in claim(one_higher, "Importance beats random").evidence


def test_alpha_needs_its_own_cells() -> None:
    assert claim(recovered(ML_NCF), "The accuracy has its peak").verdict == UNKNOWN


def betas(hr: dict[str, float]) -> list[Row]:
    """Each sampler as good as given, and a point better for every step of β."""
    return [
        row(PLAIN, "attacked", value + 0.01 * step, sampler=sampler, beta=beta)
        for sampler, value in hr.items()
        for step, beta in enumerate(BETAS)
    ]


def test_beta() -> None:
    good = {"random": 0.50, "user": 0.51, "item": 0.51, "mixed": 0.52}
    assert claim(betas(good), "The mixed sampler beats").verdict == HOLDS
    assert claim(betas(good), "The mixed sampler beats").evidence.startswith("18 of 18")
    assert claim(betas(good), "Mixed at β = 0.5").verdict == HOLDS
    assert claim(betas({**good, "user": 0.53}), "The mixed sampler beats").verdict == IN_PART
    assert claim(betas({**good, "mixed": 0.4}), "The mixed sampler beats").verdict == FAILS
    assert claim(betas({**good, "mixed": 0.505}), "Mixed at β = 0.5").verdict == FAILS


def lambdas(hr: dict[float, float], seconds: dict[float, float]) -> list[Row]:
    rows = timed(ML_NCF, {"retrain": 100.0}, timing="one")
    for share, value in hr.items():
        treatment = Treatment("fru-server") if share == 0.1 else Treatment("fru-server", speedup=share)
        rows.append(row(ML_NCF, treatment, value, seconds=seconds[share], timing="one"))
    return rows


def test_lambda() -> None:
    falling = {share: 0.6 - share / 10 for share in LAMBDAS}
    growing = {share: 5 + 100 * share for share in LAMBDAS}
    rows = lambdas(falling, growing)
    assert claim(rows, "The accuracy falls").verdict == HOLDS
    assert claim(rows, "The accuracy falls").evidence.startswith("8 of 8 checks hold")
    assert "in the paper's own table 5 of 6" in claim(rows, "The accuracy falls").evidence
    assert claim(rows, "The time grows").verdict == HOLDS
    assert claim(rows, "The time grows").evidence.startswith("4 of 4 checks hold, in the paper's own table 6 of 6.")
    bump = lambdas({**falling, 0.25: 0.9}, {**growing, 0.75: 1.0})
    assert claim(bump, "The accuracy falls").verdict == IN_PART
    assert "λ from 0.1 to 0.25" in claim(bump, "The accuracy falls").evidence
    assert claim(bump, "The time grows").verdict == IN_PART


@pytest.mark.parametrize(("rows_bytes", "verdict"), [(45_000.0, HOLDS), (49_000.0, HOLDS), (30_000.0, FAILS)])
def test_rows_of_the_log_are_near_the_formula(rows_bytes: float, verdict: str) -> None:
    rows = [row(ML_NCF, "fru-server", 0.6, log_rows_bytes=rows_bytes)]
    assert claim(rows, "A device stores").verdict == verdict


def test_the_share_of_the_log_counts_the_perceptron_too() -> None:
    """Of a table of 400 kB, 17.5% are 70 kB; a tenth more is allowed."""
    text = "The log takes an extra 17.5%"
    assert claim([row(STEAM_NCF, "fru-server", 0.6, log_bytes=76_000.0)], text).verdict == HOLDS
    heavy = claim([row(STEAM_NCF, "fru-server", 0.6, log_bytes=6_000_000.0)], text)
    assert heavy.verdict == FAILS
    assert "Steam-200k, Fed-NCF, 10%: 1500.0%, of which item rows 11.2%" in heavy.evidence
    assert claim([row(ML_NCF, "fru-server", 0.6)], text).verdict == UNKNOWN


@pytest.mark.parametrize(("size", "verdict"), [(4_000.0, HOLDS), (4_100.0, FAILS)])
def test_our_log_has_one_percent(size: float, verdict: str) -> None:
    assert claim([row(ML_NCF, "fru-device", 0.6, log_bytes=size)], "The log of FRU, device").verdict == verdict


def test_a_whole_reproduction_has_a_verdict_on_everything() -> None:
    found = claims.judge(Summary(everything()))
    assert UNKNOWN not in {one.verdict for one in found}
    assert not any("Not measured" in one.evidence for one in found)
