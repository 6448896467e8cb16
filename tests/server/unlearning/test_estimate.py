"""Estimates, held against the real thing: counts exactly, bytes and seconds within a factor of two."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedforget as ff

METHODS = [
    ff.FRU(),
    ff.FRU(replay_fraction=0.5, replay="logged"),
    ff.FRU(calibration="server"),
    ff.Retrain(),
    ff.FedRemove(),
]
LEAVERS = [3, 7, 8]


def name(method: ff.Method) -> str:
    return "-".join(str(value) for value in method.settings().values())


def build(board: ff.Interactions, **settings: object) -> ff.Federation:
    quick = {"training": ff.LocalTraining(epochs=4, batch=16), "server": ff.ServerConfig(fraction=0.2)}
    return ff.Federation(board, ff.MF(dim=8), log=ff.Log("float32"), **{**quick, **settings})  # type: ignore[arg-type]


def check_counts(fed: ff.Federation, users: list[int], method: ff.Method) -> tuple[ff.Estimate, ff.Receipt]:
    estimate = fed.estimate(users, method)
    receipt = fed.copy().forget(users, method)
    assert estimate.first_round == receipt.first_round
    assert estimate.rounds == receipt.rounds_replayed + receipt.rounds_added
    assert estimate.requests == receipt.asked
    assert estimate.bytes_down == receipt.bytes_down
    assert receipt.bytes_up / 2 <= estimate.bytes_up <= receipt.bytes_up * 2
    return estimate, receipt


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_counts_are_those_of_the_real_run(board, method):
    fed = build(board).fit(rounds=10)
    estimate, receipt = check_counts(fed, LEAVERS, method)
    first = 1 if isinstance(method, ff.Retrain) else receipt.first_round
    remaining = [[user for user in fed.cohort(round_) if user not in LEAVERS] for round_ in range(first, 11)]
    assert estimate.rounds == 11 - first
    assert estimate.requests == sum(map(len, remaining))
    assert estimate.devices == len({user for users in remaining for user in users})
    assert estimate.seconds > 0


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_counts_where_snapshots_were_thinned_and_the_way_back_is_longer(board, method):
    fed = build(board, server=ff.ServerConfig(fraction=0.2, snapshot_every=4), joins=dict.fromkeys(LEAVERS, 7))
    estimate, receipt = check_counts(fed.fit(rounds=10), LEAVERS, method)
    assert receipt.first_round >= 7
    assert estimate.rounds == (10 if isinstance(method, ff.Retrain) else 6 if receipt.first_round < 9 else 2)


@pytest.mark.parametrize("method", [*METHODS, ff.Continue()], ids=name)
def test_whoever_never_took_part_costs_nothing(board, method):
    fed = build(board, joins={5: 99}).fit(rounds=6)
    estimate, receipt = check_counts(fed, [5], method)
    assert receipt.first_round is None
    assert (estimate.rounds, estimate.devices, estimate.requests) == (0, 0, 0)
    assert (estimate.bytes_down, estimate.bytes_up, estimate.seconds) == (0, 0, 0)
    assert "nothing to replay" in str(estimate)


@pytest.mark.parametrize("method", [*METHODS, ff.Continue()], ids=name)
def test_before_the_first_round_there_is_nothing_to_do(board, method):
    estimate = build(board).estimate([5], method)
    assert (estimate.first_round, estimate.rounds, estimate.requests, estimate.seconds) == (None, 0, 0, 0)


def test_rounds_that_are_added_are_counted_with_cohorts_as_large_as_so_far(board):
    fed = build(board).fit(rounds=10)
    method = ff.Continue(0.3)
    estimate, receipt = fed.estimate(LEAVERS, method), fed.copy().forget(LEAVERS, method)
    assert estimate.rounds == receipt.rounds_added == 3
    assert receipt.asked <= estimate.requests <= 1.1 * receipt.asked
    assert receipt.bytes_up / 2 <= estimate.bytes_up <= receipt.bytes_up * 2


def test_estimating_changes_nothing(board, tmp_path):
    fed = build(board, path=tmp_path / "run").fit(rounds=4)

    def content() -> dict[Path, bytes]:
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files if not path.name.endswith("-shm")}  # SQLite's, for its locks

    before, digest = content(), fed.public.digest
    fed.estimate(LEAVERS)
    assert content() == before
    assert (fed.public.digest, fed.rounds, fed.train.n_users) == (digest, 4, 60)
    fed.close()


def test_a_person_can_read_it(board):
    estimate = build(board).fit(rounds=4).estimate(LEAVERS)
    shown = str(estimate)
    for part in (
        f"round {estimate.first_round}",
        f"{estimate.rounds} to train",
        f"{estimate.requests:,} updates",
        f"{estimate.communication_rounds} communication rounds",
    ):
        assert part in shown
    assert estimate.to_dict()["requests"] == estimate.requests


@pytest.mark.slow
@pytest.mark.alone
def test_seconds_are_within_a_factor_of_two_of_the_real_run(tmp_path):
    """On data large enough that timing is stable, once everything is compiled."""
    methods = [ff.FRU(), ff.FRU(replay_fraction=0.05, replay="logged"), ff.Retrain()]
    small = ff.synthetic(users=40, items=60, mean_items=12)
    warm = ff.Federation(small, ff.LightGCN(), path=tmp_path / "warm").fit(rounds=6)
    for method in methods:
        warm.copy(tmp_path / f"warm-{name(method)}").forget([warm.cohort(2)[0]], method)
    data = ff.synthetic(users=600, items=800, mean_items=60)
    fed = ff.Federation(data, ff.LightGCN(), path=tmp_path / "run").fit(rounds=60)
    late = sorted(fed.members, key=lambda user: fed.history.first_round_of([user]) or 0)[-2:]
    for number, (method, forgotten) in enumerate([*((each, fed.cohort(1)[:6]) for each in methods), (ff.FRU(), late)]):
        estimate = fed.estimate(forgotten, method)
        receipt = fed.copy(tmp_path / str(number)).forget(forgotten, method)
        assert estimate.requests == receipt.asked
        assert receipt.seconds / 2 < estimate.seconds < receipt.seconds * 2, (method, estimate, receipt)
