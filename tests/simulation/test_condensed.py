"""Condensed replay: past rounds put together to steps: what they compute, leave behind and cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff
from fedforget.errors import ConfigError
from fedforget.protocol.tasks import Replay
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.server.unlearning import condensed_retrain, default_method
from fedforget.server.unlearning.estimate import _waits
from fedforget.server.unlearning.method import Past, strides
from tests.small_federations import DATA, FLOAT, ROUNDS, assert_same_state, build, first_in, trained

MODELS = [ff.MF(dim=8), ff.LightGCN(dim=8), ff.NCF(dim=8, hidden=(16, 16, 8))]
REFIT = ff.LocalTraining(epochs=3, batch=16, lr=0.01, refit=True)


def bits(answers: CohortResult) -> list[Any]:
    updates = answers.updates
    parts = (updates.ptr, updates.items, updates.rows, updates.dense, updates.sizes, updates.losses)
    return [list(updates.users), dict(answers.failures), *(part.tobytes() for part in parts)]


# What a device does for several rounds at once


def branch_of(fed: ff.Federation, until: int) -> Any:
    log = fed.devices.log.branch(None, until, np.empty(0, np.uint64))
    new = fed.devices.branch(log, until, fed.train)
    new.set_private(until)
    return new


@pytest.mark.parametrize(
    "how", [Replay(2), Replay(1, "logged"), Replay(3, parts="none"), Replay(2, parts="all")], ids=str
)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_each_round_of_a_step_brings_what_it_would_bring_alone_from_the_same_parameters(
    model: ff.Recommender, how: Replay
) -> None:
    fed = trained(model=model)
    asked = {round_: fed.cohort(round_) for round_ in (3, 4, 6)}
    together = branch_of(fed, 2).replay(asked, fed.public, how)
    for round_, users in asked.items():
        alone = branch_of(fed, 2).replay({round_: users}, fed.public, how)[round_]
        assert bits(together[round_]) == bits(alone)


@pytest.mark.parametrize("training", [None, REFIT], ids=["private updates add up", "fitted anew"])
def test_private_updates_of_a_step_add_up_unless_vectors_are_fitted(training: ff.LocalTraining | None) -> None:
    fed = trained(**({} if training is None else {"training": training}))
    asked = {round_: fed.cohort(round_) for round_ in range(3, ROUNDS + 1)}
    user = next(user for user in asked[3] if sum(user in users for users in asked.values()) > 1)
    start = branch_of(fed, 2).private(user).copy()
    moved = []
    for round_, users in asked.items():
        if user in users:
            alone = branch_of(fed, 2)
            alone.replay({round_: users}, fed.public, Replay(2))
            moved.append(alone.private(user) - start)
    devices = branch_of(fed, 2)
    devices.replay(asked, fed.public, Replay(2))
    expected = start + (moved[-1] if training is not None else sum(moved))
    np.testing.assert_allclose(devices.private(user), expected, rtol=1e-4, atol=1e-6)


def test_a_step_is_logged_round_by_round_and_a_second_erasure_reads_it() -> None:
    fed = trained(log=FLOAT)
    fed.forget(first_in(fed, 2), ff.FRU(0.4, stride=4))
    known = {round_: keys.size for round_, keys, _ in fed.devices.log.store.heads()}
    assert known == {round_: len(fed.cohort(round_)) for round_ in range(1, ROUNDS + 1)}
    receipt = fed.forget(first_in(fed, 4), ff.FRU(0.4, stride=4))
    assert receipt.coverage == 1


def test_a_user_who_diverges_in_one_round_of_a_step_is_named_for_that_round_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = trained()
    asked = {round_: fed.cohort(round_) for round_ in range(3, ROUNDS + 1)}
    user = next(user for user in asked[3] if sum(user in users for users in asked.values()) > 1)
    devices = branch_of(fed, 2)
    trainer = devices._trainer
    first = [user for users in asked.values() for user in users].index(user)

    def diverging(*given: Any) -> Any:
        done = trainer(*given)
        done.private[first] = np.nan
        return done

    monkeypatch.setattr(devices, "_trainer", diverging)
    answers = devices.replay(asked, fed.public, Replay(2))
    assert [round_ for round_, answer in answers.items() if user in answer.failures] == [3]
    assert np.isfinite(devices.private(user)).all()


# What the server does with a step


@pytest.mark.parametrize("store", ["memory", "packed"])
def test_strides_of_one_round_are_plain_replay_and_retrain(store: str, tmp_path: Path) -> None:
    where = {} if store == "memory" else {"path": tmp_path / "run"}
    fed, other = trained(**where), trained()
    forgotten = first_in(fed, 3)
    assert fed.forget(forgotten, ff.Retrain(stride=1)).communication_rounds == ROUNDS
    other.forget(forgotten, ff.Retrain())
    assert_same_state(fed, other)


def test_a_condensed_retrain_of_everything_adds_up_what_each_round_learns_from_the_start() -> None:
    fed = trained(server=ff.ServerConfig(fraction=0.25, optimiser=ff.SGD(lr=0.5, horizon=4)))
    initial = fed.history.snapshot(0)
    forgotten = first_in(fed, 1)
    rest = {round_: [user for user in fed.cohort(round_) if user not in forgotten] for round_ in range(1, ROUNDS + 1)}
    answers = branch_of(fed, 0).replay(rest, initial, Replay(3, parts="none"))
    expected = initial.items.copy()
    for round_, answer in answers.items():
        step = np.zeros_like(expected)
        np.add.at(step, answer.updates.items, answer.updates.rows / len(answer.updates))
        expected += fed.config.server.optimiser.lr_at(round_) * step
    assert fed.forget(forgotten, ff.Retrain(stride=ROUNDS)).communication_rounds == 1
    np.testing.assert_allclose(fed.public.items, expected, rtol=1e-4, atol=1e-6)


def test_a_step_has_one_snapshot_and_a_later_erasure_goes_back_before_it_and_says_so(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    fed.forget(first_in(fed, 1), ff.FRU(0.4, stride=3))
    assert fed.history.usable_rounds() == [8, 7, 4, 1, 0]
    with pytest.raises(ff.RunError, match=r"no snapshot of round 3\.\n.*replayed in one step"):
        fed.history.state(3)
    forgotten = first_in(fed, 3)
    estimate = fed.estimate(forgotten, ff.FRU(0.4, stride=3))
    assert (estimate.first_round, estimate.start, estimate.rounds) == (3, 1, 7)
    assert "from the snapshot of round 1, the last one before it" in str(estimate)
    receipt = fed.forget(forgotten, ff.FRU(0.4, stride=3))
    assert receipt.rounds_replayed == 7
    assert receipt.communication_rounds == estimate.communication_rounds == 3
    assert (receipt.messages, receipt.asked) == (estimate.messages, estimate.requests)
    assert receipt.messages < receipt.asked
    fed.fit(more=2)
    assert fed.rounds == ROUNDS + 2


@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_a_step_goes_no_further_than_its_limit(limit: float) -> None:
    fed, free = trained(), trained()
    before, old = fed.history.snapshot(3), fed.history.moved(4, ROUNDS)
    forgotten = first_in(fed, 3)
    free.forget(forgotten, ff.FRU(0.4, stride=5, limit=0))
    fed.forget(forgotten, ff.FRU(0.4, stride=5, limit=limit))
    start = fed.history.snapshot(3).items
    assert not np.array_equal(start, before.items)
    far = np.linalg.norm(free.public.items - start)
    assert far > 0.01 * old
    expected = min(far, limit * old)
    assert np.linalg.norm(fed.public.items - start) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("fraction", [0.4, 1.0])
def test_erasure_after_erasure_the_limit_does_not_shrink_the_model(fraction: float) -> None:
    fed = trained(rounds=21, server=ff.ServerConfig(fraction=0.25, aggregation="root"))
    start = fed.history.snapshot(0).items
    far = []
    for user in (1, 2, 3, 4, 5):
        fed.forget([user], ff.FRU(fraction, stride=10, limit=0.3))
        far.append(float(np.linalg.norm(fed.public.items - start)))
    assert min(far[1:]) > 0.7 * far[0]  # at 0.3 of it each time, less than a hundredth would be left


def test_stored_updates_of_a_limited_step_are_not_taken_for_what_was_applied() -> None:
    fed = trained(log=FLOAT)
    fed.forget(first_in(fed, 1), ff.FRU(0.4, stride=4))
    for method in (ff.FedRemove(), ff.FRU(0.4, calibration="server")):
        with pytest.raises(ConfigError, match="replayed rounds in steps"):
            fed.forget(first_in(fed, 3), method)
    assert fed.forget(first_in(fed, 3), ff.Retrain(stride=4)).coverage == 1
    assert fed.forget(first_in(fed, 4), ff.FedRemove()).coverage == 1


def test_a_damaged_snapshot_inside_the_past_does_not_stop_a_replay(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    path = tmp_path / "run" / "trajectory-1" / "snapshots" / "000005.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 8
    path.write_bytes(raw)
    exact = np.linalg.norm(fed.history.snapshot(6).items - fed.history.snapshot(2).items)
    assert fed.history.moved(3, 5) == pytest.approx(exact * 3 / 4)
    assert fed.forget(first_in(fed, 2), ff.FRU(0.4, stride=3)).coverage == 1


def test_waiting_is_estimated_by_communication_rounds_also_after_a_condensed_erasure() -> None:
    fed = trained()
    fed.forget(first_in(fed, 1), ff.FRU(0.4, stride=4))
    history = fed.history
    waits = [history.record(1).seconds - history.record(1).training]
    for first, last in ((2, 5), (6, 8)):
        records = [history.record(round_) for round_ in range(first, last + 1)]
        waits.append(sum(record.seconds - record.training for record in records))
    known = [history.record(round_) for round_ in range(1, ROUNDS + 1)]
    assert _waits(history, known) == pytest.approx(waits)


def test_how_far_the_old_model_moved_is_known_without_every_snapshot() -> None:
    whole = trained()
    thinned = trained(server=ff.ServerConfig(fraction=0.25, snapshot_every=4))
    exact = np.linalg.norm(whole.history.snapshot(8).items - whole.history.snapshot(4).items)
    assert whole.history.moved(5, 8) == pytest.approx(exact)
    assert thinned.history.moved(5, 8) == pytest.approx(exact)
    assert thinned.history.moved(6, 7) == pytest.approx(exact / 2)


def test_rounds_up_to_the_first_leavers_are_as_if_it_had_never_been_there() -> None:
    fed, never = trained(log=FLOAT), trained(log=FLOAT, rounds=4)
    forgotten = first_in(fed, 4)
    fed.forget(forgotten, ff.FRU(0.4, stride=3))
    never.forget(forgotten, ff.Retrain())
    assert fed.history.snapshot(4).digest == never.history.snapshot(4).digest


# Training anew in a constant number of rounds


def anew(users: ff.Interactions, **changes: Any) -> ff.Federation:
    settings = {"model": ff.IALS(dim=8, reg=1.0), "training": None, "server": None}
    return build(train=users, **{**settings, **changes})


def test_training_anew_uses_nothing_of_the_old_trajectory() -> None:
    """Two federations in which the forgotten did different things end up bit for bit the same."""
    forgotten = [3, 4]
    users, items = DATA.pairs()
    ids = DATA.user_ids[users]
    shifted = np.where(np.isin(ids, forgotten), (items + 7) % DATA.n_items, items)
    other_data = ff.Interactions.from_pairs(ids, DATA.item_ids[shifted]).with_items(DATA.item_ids)
    fed, other = anew(DATA).fit(rounds=12), anew(other_data).fit(rounds=12)
    assert fed.public.digest != other.public.digest
    for each in (fed, other):
        receipt = each.forget(forgotten, ff.Retrain(steps=4))
        assert receipt.communication_rounds == 4
        assert receipt.messages == 4 * 38
    assert_same_state(fed, other)
    assert fed.rounds == 12
    fed.fit(more=1)


@pytest.mark.parametrize("rounds", [3, 4])
def test_a_short_history_is_trained_again_as_it_was(rounds: int) -> None:
    fed, other = anew(DATA).fit(rounds=rounds), anew(DATA).fit(rounds=rounds)
    forgotten = [fed.cohort(1)[0]]
    assert fed.forget(forgotten, ff.Retrain(steps=4)).communication_rounds == rounds
    other.forget(forgotten, ff.Retrain())
    assert_same_state(fed, other)


def test_a_share_of_the_devices_is_drawn_for_each_step_and_the_learning_rate_falls_over_them() -> None:
    fed = anew(DATA, server=ff.ServerConfig(0.25, optimiser=ff.SGD(lr=0.01, horizon=100))).fit(rounds=20)
    receipt = fed.forget([5], ff.Retrain(steps=5, fraction=0.4, lr_scale=3.0))
    ends = fed.history.steps_after(0)
    assert ends == [4, 8, 12, 16, 20]
    assert [len(fed.cohort(end)) for end in ends] == [16] * 5
    assert [fed.cohort(round_) for round_ in (1, 2, 3)] == [[], [], []]
    assert receipt.messages == 5 * 16
    assert len({tuple(fed.cohort(end)) for end in ends}) == 5


def test_steps_before_anyone_has_joined_ask_nobody() -> None:
    fed = anew(DATA, joins=dict.fromkeys(DATA.user_ids.tolist(), 9)).fit(rounds=16)
    estimate = fed.estimate([5], ff.Retrain(steps=4))
    receipt = fed.forget([5], ff.Retrain(steps=4))
    assert estimate.communication_rounds == receipt.communication_rounds == 2


# Defaults, refusals and what is said


def test_the_default_and_its_reason_are_in_estimate_and_receipt() -> None:
    for model, name, stride in ((ff.MF(dim=8), "fru", 10), (MODELS[2], "fru", 2)):
        fed = trained(model=model)
        forgotten = first_in(fed, 2)
        estimate = fed.estimate(forgotten)
        assert (estimate.method["name"], estimate.method["stride"]) == (name, stride)
        assert f"the default for {model.name}" in str(estimate)
        receipt = fed.forget(forgotten)
        assert receipt.method == estimate.method
        assert "the default for" in receipt.chosen
        assert fed.forget(first_in(fed, 3), ff.Retrain()).chosen == "as asked for"
    fed = anew(DATA).fit(rounds=25)
    assert fed.forget([3]).method["steps"] == 20
    assert "the default for ials" in str(fed.receipts()[-1])


def test_condensed_retrain_by_model() -> None:
    assert condensed_retrain(ff.IALS()) == default_method(ff.IALS()) == ff.Retrain(steps=20)
    assert condensed_retrain(ff.LightGCN()) == ff.Retrain(stride=10)
    assert condensed_retrain(ff.NCF()) == ff.Retrain(stride=2)
    averaging, summing = ff.ServerConfig(), ff.ServerConfig(aggregation="root")
    assert ff.FRU().for_model(ff.LightGCN()).for_server(summing) == ff.FRU(stride=10, limit=0.7)
    assert ff.FRU().for_model(ff.LightGCN()).for_server(averaging) == ff.FRU(stride=10, limit=0.0)
    assert ff.FRU().for_model(ff.NCF()).for_server(summing) == ff.FRU(stride=2, limit=0.0)
    assert ff.FRU(limit=0.4).for_model(ff.MF()).for_server(averaging) == ff.FRU(stride=10, limit=0.4)
    assert ff.FRU(calibration="server").for_model(ff.LightGCN()).stride == 1
    assert ff.FRU(stride=3, limit=0.2).for_model(ff.NCF()) == ff.FRU(stride=3, limit=0.2)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ff.FRU(stride=0), "stride is 0"),
        (lambda: ff.FRU(limit=-1), "limit is -1"),
        (lambda: ff.FRU(calibration="server", stride=2), "stride is 2 with calibration 'server'"),
        (lambda: ff.Retrain(stride=-1), "stride is -1"),
        (lambda: ff.Retrain(steps=-1), "steps is -1"),
        (lambda: ff.Retrain(steps=5, stride=2), "steps is 5, stride is 2"),
        (lambda: ff.Retrain(steps=5, fraction=0), "fraction is 0"),
        (lambda: ff.Retrain(steps=5, lr_scale=0), "lr_scale is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        make()
    assert refused.value.hint


def test_strides_cover_every_round_once_and_ask_nobody_for_empty_ones() -> None:
    past = Past({3: [1], 4: [], 5: [2, 3], 6: [1], 7: []}, 3, set(), lambda *_: [], lambda *_: 0.0)
    steps = strides(past, 2)
    assert [(step.first, step.last, dict(step.asked)) for step in steps] == [
        (3, 4, {3: [1]}), (5, 6, {5: [2, 3], 6: [1]}), (7, 7, {})
    ]  # fmt: skip
    assert [step.devices for step in steps] == [{1}, {1, 2, 3}, set()]
    assert [(step.first, step.last) for step in strides(past, 10, after=4)] == [(5, 7)]


def test_updates_are_cut_and_put_together_again_without_a_difference() -> None:
    fed = trained()
    updates = branch_of(fed, 2).replay({3: fed.cohort(3)}, fed.public, Replay(2))[3].updates
    parts = [updates.between(0, 2), updates.between(2, 2), updates.between(2, len(updates))]
    assert bits(CohortResult(Updates.end_to_end(parts))) == bits(CohortResult(replace(updates)))
