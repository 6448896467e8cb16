"""Forgetting: what a request changes, what it leaves exactly as it was, and what it refuses."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.devices import Devices
from fedforget.errors import QuorumError, RunWarning
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Asked, Replay, Task
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.aggregation import Mean
from fedforget.server.clients import Clients
from fedforget.server.optimiser import SGD
from fedforget.server.state import ServerState
from tests.forks import processes
from tests.samplers import make_sampler
from tests.small_federations import (
    DATA,
    FLOAT,
    ROUNDS,
    assert_same_state,
    build,
    contents,
    distance,
    first_in,
    privates,
    trained,
)

#: Each of them needs only what Log("float32") keeps.
METHODS = [
    ff.FRU(0.4, stride=1),
    ff.FRU(0.4, replay="logged", parts="all", stride=1),
    ff.FRU(0.4, calibration="server", parts="all", private="fresh"),
    ff.FRU(0.4, calibration="server", granularity="tensor", replay="logged"),
    ff.FedRemove(),
    ff.Retrain(),
    ff.Continue(0.25),
]
METHOD_IDS = ["fru", "fru-logged", "fru-server", "fru-server-tensor-logged", "fedremove", "retrain", "continue"]
STORES = ["memory", "packed", "sqlite"]
#: A file a device is slow where the disk is.
SQLITE = pytest.param("sqlite", marks=pytest.mark.slow)


def where(store: str, folder: Path) -> dict[str, Any]:
    """The settings of a federation that keeps its logs in this store."""
    return {} if store == "memory" else {"path": folder / store, "log": ff.Log(store=store)}


class Listening:
    """Clients whose answers a test looks at, or tampers with."""

    def __init__(self, clients: Clients, tamper: Callable[[int, CohortResult], CohortResult]) -> None:
        self.clients = clients
        self.tamper = tamper

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> dict[int, CohortResult]:
        results = self.clients.run(task, asked, public)
        return {round_: self.tamper(round_, result) for round_, result in results.items()}

    def apply_factors(self, round_: int, factors: Factors) -> None:
        self.clients.apply_factors(round_, factors)


def listen(
    fed: ff.Federation, monkeypatch: pytest.MonkeyPatch, tamper: Callable[[int, CohortResult], CohortResult]
) -> None:
    reached = fed._reached
    monkeypatch.setattr(fed, "_reached", lambda devices: Listening(reached(devices), tamper))


# A user who never took part


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
@pytest.mark.parametrize("why", ["joins later", "was never drawn"])
def test_forgetting_who_never_took_part_changes_nothing_else(why: str, method: ff.Method) -> None:
    joins = {7: ROUNDS + 5} if why == "joins later" else {}
    fed = trained(rounds=4, joins=joins, log=FLOAT)
    taken_part = {user for round_ in range(1, 5) for user in fed.cohort(round_)}
    leaver = 7 if joins else next(user for user in fed.train.user_ids.tolist() if user not in taken_part)
    remaining = [user for user in fed.train.user_ids.tolist() if user != leaver]
    digest, private, rounds = fed.public.digest, privates(fed, remaining), []
    receipt = fed.forget([leaver], method, on_round=rounds.append)
    assert fed.public.digest == receipt.digest_before == receipt.digest_after == digest
    assert privates(fed) == private
    assert (receipt.first_round, receipt.rounds_replayed, receipt.rounds_added) == (None, 0, 0)
    assert (receipt.asked, receipt.bytes_down, receipt.bytes_up, rounds) == (0, 0, 0, [])
    assert receipt.coverage == 1.0
    assert fed.rounds == 4
    assert fed.train.user_ids.tolist() == fed.history.membership.users() == remaining
    assert fed.config.joins == {}


@pytest.mark.parametrize("store", STORES)
def test_forgetting_who_never_took_part_in_every_store(store: str, tmp_path: Path) -> None:
    leaver = 7
    fed = trained(**where(store, tmp_path), joins={leaver: 6}, rounds=5)
    digest, private = fed.public.digest, privates(fed)
    assert fed.forget([leaver]).rounds_replayed == 0
    del private[leaver]
    for _ in range(2):
        assert fed.public.digest == digest
        assert privates(fed) == private
        assert leaver not in fed.history.membership.users()
        with pytest.raises(ff.DataError):
            fed.devices.private(leaver)
        if store == "memory":
            return
        fed.close()
        fed = ff.Federation.open(tmp_path / store, DATA)
    assert sorted(path.name for path in (tmp_path / store).glob("trajectory-*")) == ["trajectory-2"]


def test_forgetting_before_the_first_round(tmp_path: Path) -> None:
    fed = build(tmp_path / "run")
    digest = fed.public.digest
    assert fed.forget([3, 4]).rounds_replayed == 0
    assert (fed.rounds, fed.public.digest, fed.train.n_users) == (0, digest, 38)
    fed.fit(rounds=3)
    assert_same_state(fed, trained(train=DATA.without([3, 4]), rounds=3))


# The replay machinery adds nothing of its own


@dataclass(frozen=True)
class Again(ff.Method):
    """Replay in full, and calibrate nothing."""

    items: str = "fresh"

    name: ClassVar[str] = "again"

    def step(self, past: ff.PastStep) -> tuple[ServerState, Mapping[int, CohortResult]]:
        return past.run(Replay(past.epochs, self.items, parts="none"))


@pytest.mark.parametrize(
    "model", [ff.MF(dim=8), ff.LightGCN(dim=8), ff.NCF(dim=8, hidden=(16, 16, 8))], ids=["mf", "lightgcn", "ncf"]
)
@pytest.mark.parametrize("leaving_in", [1, 4])
def test_a_full_replay_that_calibrates_nothing_equals_retrain(model: ff.Recommender, leaving_in: int) -> None:
    fed, other = trained(model=model, log=FLOAT), trained(model=model, log=FLOAT)
    forgotten = first_in(fed, leaving_in)
    receipt = fed.forget(forgotten, Again())
    assert receipt.first_round == leaving_in
    assert receipt.rounds_replayed == ROUNDS - leaving_in + 1
    assert other.forget(forgotten, ff.Retrain()).rounds_replayed == ROUNDS
    assert_same_state(fed, other)


def test_a_replay_on_logged_items_equals_retrain_while_the_negatives_are_the_same() -> None:
    """The pools of negatives depend on the parameters, so after the first replayed round they differ."""
    settings = {"sampler": make_sampler(R=10), "log": FLOAT, "rounds": 12}
    fed, other = trained(**settings), trained(**settings)
    forgotten = first_in(fed, 3)
    fed.forget(forgotten, Again("logged"))
    other.forget(forgotten, ff.Retrain())
    assert fed.history.snapshot(3).digest == other.history.snapshot(3).digest
    assert fed.public.digest != other.public.digest


@pytest.mark.parametrize("encoding", ["float32", "lengths"])
def test_a_replay_on_logged_items_equals_retrain_where_pools_do_not_depend_on_parameters(encoding: str) -> None:
    settings = {"sampler": make_sampler("random"), "log": ff.Log(encoding)}
    fed, other = trained(**settings), trained(**settings)
    forgotten = first_in(fed, 1)
    fed.forget(forgotten, Again("logged"))
    other.forget(forgotten, ff.Retrain())
    assert_same_state(fed, other)


@pytest.mark.parametrize("model", [ff.MF(dim=8), ff.NCF(dim=8, hidden=(16, 16, 8))], ids=["mf", "ncf"])
def test_retrain_equals_a_federation_that_never_had_the_leavers(model: ff.Recommender, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", model=model)
    forgotten = [*first_in(fed, 2), *first_in(fed, 4)]
    cohorts = {r: [user for user in fed.cohort(r) if user not in forgotten] for r in range(1, ROUNDS + 1)}
    fed.forget(forgotten, ff.Retrain())
    fresh = build(train=DATA.without(forgotten), model=model).fit(rounds=ROUNDS, cohorts=cohorts)
    assert_same_state(fed, fresh)
    assert_same_state(fed.fit(more=3), fresh.fit(more=3))


# Rolling back


@pytest.mark.parametrize("method", METHODS[:5], ids=METHOD_IDS[:5])
def test_rounds_before_the_first_leaver_stay_as_they_were(method: ff.Method, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", log=FLOAT)
    before = contents(tmp_path / "run" / "trajectory-1")
    forgotten = [*first_in(fed, 4), *first_in(fed, 5)]
    cohorts = {round_: fed.cohort(round_) for round_ in range(1, ROUNDS + 1)}
    replayed: list[int] = []
    receipt = fed.forget(forgotten, method, on_round=lambda record: replayed.append(record.round))
    after = contents(tmp_path / "run" / "trajectory-2")
    for round_ in range(4):
        name = f"snapshots/{round_:06d}.safetensors"
        assert after[name] == before[name]
        if round_:
            assert after[f"devices/rounds/{round_:06d}.log"] == before[f"devices/rounds/{round_:06d}.log"]
            assert fed.cohort(round_) == cohorts[round_]
    assert (receipt.first_round, receipt.rounds_replayed) == (4, ROUNDS - 3)
    assert replayed == list(range(4, ROUNDS + 1))
    for round_ in replayed:
        assert fed.cohort(round_) == [user for user in cohorts[round_] if user not in forgotten]
        name = f"snapshots/{round_:06d}.safetensors"
        assert after[name] != before[name]


def test_a_late_joiner_costs_only_the_rounds_since() -> None:
    fed = trained(joins={5: 7}, server=ff.ServerConfig(fraction=1.0))
    receipt = fed.forget([5])
    assert (receipt.first_round, receipt.rounds_replayed, receipt.asked) == (7, 2, 2 * 39)


def test_thinned_snapshots_go_back_to_the_one_before_and_rebuild_up_to_the_first_leaver() -> None:
    thinned = ff.ServerConfig(fraction=0.25, snapshot_every=4)
    fed, all_kept = trained(server=thinned, log=FLOAT), trained(log=FLOAT)
    forgotten = first_in(fed, 7)
    remaining = {round_: all_kept.cohort(round_) for round_ in range(1, ROUNDS + 1)}
    before_the_leaver = all_kept.history.snapshot(6).digest
    rebuilt: dict[int, str] = {}

    def note(record: Any) -> None:
        rebuilt[record.round] = ""

    receipt = fed.forget(forgotten, ff.FRU(0.4), on_round=note)
    all_kept.forget(forgotten, ff.FRU(0.4))
    assert (receipt.first_round, receipt.rounds_replayed) == (7, 4)
    assert list(rebuilt) == [5, 6, 7, 8]
    assert receipt.asked == sum(len([u for u in remaining[round_] if u not in forgotten]) for round_ in rebuilt)
    assert fed.public.digest == all_kept.public.digest
    assert privates(fed) == privates(all_kept)
    assert all_kept.history.snapshot(6).digest == before_the_leaver
    assert fed.history.usable_rounds() == [8, 4, 0]


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
def test_a_round_whose_users_all_leave_stays_as_a_round_without_participants(method: ff.Method, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", server=ff.ServerConfig(fraction=0.05), log=FLOAT)
    forgotten = fed.cohort(4)
    assert len(forgotten) == 2
    fed.forget(forgotten, method)
    assert fed.cohort(4) == []
    if not isinstance(method, ff.Continue):  # which leaves past rounds alone
        assert fed.history.record(4).loss is None
        assert fed.history.snapshot(4).digest == fed.history.snapshot(3).digest
        assert fed.rounds == ROUNDS
    fed.fit(more=2)
    fed.close()
    again = ff.Federation.open(tmp_path / "run", DATA)
    assert again.public.digest == fed.public.digest


def test_all_users_of_the_last_rounds_leaving_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    """Then the newest rounds have no log entry: opening the run must not take that for a loss."""
    fed = trained(tmp_path / "run", server=ff.ServerConfig(fraction=0.05))
    fed.forget(sorted({*fed.cohort(ROUNDS), *fed.cohort(ROUNDS - 1)}))
    digest = fed.public.digest
    fed.close()
    again = ff.Federation.open(tmp_path / "run", DATA)
    assert (again.rounds, again.public.digest) == (ROUNDS, digest)
    assert again.fit(more=2).rounds == ROUNDS + 2


# Afterwards


@pytest.mark.parametrize("store", ["packed", SQLITE])
@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
def test_what_is_on_disk_describes_the_new_trajectory(method: ff.Method, store: str, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", log=ff.Log("float32", store=store))
    forgotten = first_in(fed, 3, 2)
    fed.forget(forgotten, method)
    remaining = set(fed.train.user_ids.tolist())
    keys = {user_key(user) for user in remaining}
    logged = {round_: set(users.tolist()) for round_, users, _ in fed.devices.log.store.heads()}
    for round_ in range(1, fed.rounds + 1):
        assert logged[round_] == {user_key(user) for user in fed.cohort(round_)} <= keys
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "trajectory-2" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["round"] for line in lines] == list(range(1, fed.rounds + 1))
    for line in lines:
        record = fed.history.record(line["round"])
        assert (line["clients"], line["failures"]) == (len(record.participants), 0)
        assert line["loss"] == record.loss
    fed.close()
    again = ff.Federation.open(tmp_path / "run", DATA)
    assert_same_state(again, fed_like(fed))
    assert set(again.train.user_ids.tolist()) == remaining
    assert again.receipts() == [replace(fed_receipt(tmp_path / "run"), salt=None)]
    again.fit(more=2)


def fed_like(fed: ff.Federation) -> Any:
    """What is left of a closed federation in memory."""

    class Left:
        rounds, public, train, devices = fed.rounds, fed.public, fed.train, fed.devices

        class history:  # noqa: N801
            @staticmethod
            def usable_rounds() -> list[int]:
                return []

    return Left()


def fed_receipt(run: Path) -> ff.Receipt:
    (file,) = (run / "receipts").iterdir()
    return ff.Receipt.from_json(file.read_text())


@pytest.mark.parametrize("replay_on", ["fresh", "logged"])
def test_the_logged_lengths_are_those_of_the_updates_that_were_applied(
    replay_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = trained(log=FLOAT, model=ff.NCF(dim=8, hidden=(16, 16, 8)))
    sent: dict[int, Updates] = {}

    def note(round_: int, answers: CohortResult) -> CohortResult:
        sent[round_] = answers.updates
        return answers

    listen(fed, monkeypatch, note)
    fed.forget(first_in(fed, 3), ff.FRU(0.4, replay=replay_on))
    assert sorted(sent) == list(range(3, ROUNDS + 1))
    for round_, updates in sent.items():
        keys = np.array([user_key(user) for user in updates.users], np.uint64)
        _, logged, missing = fed.devices.log.read(round_, keys)
        assert not missing
        sent_lengths = np.split(np.linalg.norm(updates.rows, axis=1), updates.ptr[1:-1])  # in catalogue order
        for one, other in zip(np.split(logged.lengths, updates.ptr[1:-1]), sent_lengths, strict=True):
            np.testing.assert_allclose(np.sort(one), np.sort(other), rtol=1e-5, atol=1e-9)
        for tensor, places in enumerate(fed.public.layout.places.values()):
            lengths = np.linalg.norm(updates.dense[:, places], axis=1)
            np.testing.assert_allclose(logged.dense_lengths[:, tensor], lengths, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("method", METHODS[:6], ids=METHOD_IDS[:6])
@pytest.mark.parametrize("model", [ff.MF(dim=8), ff.NCF(dim=8, hidden=(16, 16, 8))], ids=["mf", "ncf"])
def test_the_logged_updates_of_a_round_add_up_to_the_step_between_its_snapshots(
    model: ff.Recommender, method: ff.Method
) -> None:
    fed = trained(model=model, log=FLOAT)
    fed.forget(first_in(fed, 3), method)
    log = fed.devices.log
    reader: Devices = fed.devices.branch(log.branch(None, 0, np.empty(0, np.uint64)), 0, fed.train)
    for round_ in range(1, ROUNDS + 1):
        before, after = fed.history.snapshot(round_ - 1), fed.history.snapshot(round_)
        answers = reader.recall(round_, fed.cohort(round_))
        assert list(answers.updates.users) == fed.cohort(round_)
        stepped = SGD().apply(ServerState(before), Mean().combine(answers.updates, before), round_).public
        np.testing.assert_allclose(stepped.items, after.items, rtol=0, atol=2e-6)
        np.testing.assert_allclose(stepped.dense, after.dense, rtol=0, atol=2e-6)
        assert not np.array_equal(before.items, after.items)


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
def test_ten_requests_one_after_another_with_training_in_between(method: ff.Method, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", log=FLOAT)
    for request in range(1, 11):
        leaver = fed.cohort(fed.rounds - 1)[0]
        receipt = fed.forget([leaver], method)
        assert receipt.names(leaver)
        assert receipt.first_round is not None
        assert receipt.answered == receipt.asked > 0
        assert receipt.digest_before != receipt.digest_after == fed.public.digest
        assert np.isfinite(fed.public.items).all()
        assert fed.train.n_users == DATA.n_users - request
        fed.fit(more=1)
    assert len(fed.receipts()) == len(list((tmp_path / "run" / "receipts").iterdir())) == 10
    assert len({receipt.request for receipt in fed.receipts()}) == 10
    assert sorted(path.name for path in (tmp_path / "run").glob("trajectory-*")) == ["trajectory-11"]
    fed.close()
    again = ff.Federation.open(tmp_path / "run", DATA)
    assert (again.rounds, again.public.digest, again.train.n_users) == (fed.rounds, fed.public.digest, 30)


def test_retraining_twice_equals_retraining_once_without_both() -> None:
    twice, once = trained(), trained()
    a, b = first_in(once, 2), first_in(once, 4)
    twice.forget(a, ff.Retrain())
    twice.forget(b, ff.Retrain())
    once.forget([*a, *b], ff.Retrain())
    assert_same_state(twice, once)


@pytest.mark.parametrize(
    "model", [ff.MF(dim=8, init_std=0.1), ff.LightGCN(dim=8, init_std=0.1)], ids=["mf", "lightgcn"]
)
@pytest.mark.parametrize(
    "method",
    [ff.FRU(), ff.FRU(0.2, replay="logged"), ff.FRU(0.2, calibration="server")],
    ids=["device", "logged", "server"],
)
def test_two_requests_in_a_row_come_as_close_to_retrain_as_both_at_once(
    model: ff.Recommender, method: ff.Method
) -> None:
    data = ff.synthetic(users=60, items=80, mean_items=20, seed=5)
    attack = ff.Attack.by(data.user_ids.tolist(), 0.2, seed=1)
    users = list(attack.users)
    settings: dict[str, Any] = {
        "model": model, "attack": attack, "log": FLOAT, "rounds": 15, "train": data,
        "training": ff.LocalTraining(epochs=10, batch=32, lr=0.01), "server": ff.ServerConfig(fraction=0.3),
    }  # fmt: skip
    poisoned = trained(**settings)
    retrained = poisoned.copy()
    retrained.forget(users, ff.Retrain())
    at_once = poisoned.copy()
    at_once.forget(users, method)
    in_a_row = poisoned.copy()
    in_a_row.forget(users[: len(users) // 2], method)
    in_a_row.forget(users[len(users) // 2 :], method)
    apart = {name: distance(fed.public, retrained.public) for name, fed in
             {"poisoned": poisoned, "at once": at_once, "in a row": in_a_row}.items()}  # fmt: skip
    assert apart["at once"] < 0.6 * apart["poisoned"], apart
    assert apart["in a row"] < 0.6 * apart["poisoned"], apart
    assert 2 / 3 < apart["at once"] / apart["in a row"] < 3 / 2, apart


# The same everywhere


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
def test_every_store_gives_the_same_result(method: ff.Method, tmp_path: Path) -> None:
    results = []
    for store in STORES:
        path = None if store == "memory" else tmp_path / store
        fed = trained(path, log=ff.Log("float32", store="packed" if store == "memory" else store))
        receipt = fed.forget(first_in(fed, 3), method)
        fed.forget(first_in(fed, 2), method)
        results.append((fed.public.digest, privates(fed), receipt.asked, receipt.bytes_up, receipt.missing))
        fed.close()
    assert results[0] == results[1] == results[2]


def test_memory_and_both_stores_agree_with_lengths_only(tmp_path: Path) -> None:
    results = []
    for store in STORES:
        fed = trained(**where(store, tmp_path))
        fed.forget(first_in(fed, 3), ff.FRU(0.4))
        fed.forget(first_in(fed, 2), ff.FRU(0.4, replay="logged"))
        results.append((fed.public.digest, privates(fed)))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
def test_the_number_of_workers_does_not_decide_the_result(method: ff.Method) -> None:
    results = []
    for workers in (1, 2, 5):
        fed = trained(log=FLOAT, compute=ff.Compute(workers=workers))
        fed.forget(first_in(fed, 3), method)
        results.append((fed.public.digest, privates(fed)))
    assert results[0] == results[1] == results[2]


def test_opening_the_run_before_forgetting_makes_no_difference(tmp_path: Path) -> None:
    fed, other = trained(tmp_path / "a"), trained(tmp_path / "b")
    forgotten = first_in(fed, 3)
    other.close()
    other = ff.Federation.open(tmp_path / "b", DATA)
    fed.forget(forgotten, ff.FRU(0.4))
    other.forget(forgotten, ff.FRU(0.4))
    assert_same_state(fed, other)


# Devices that do not answer, and what cannot be used


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
def test_devices_that_do_not_answer_are_left_out_and_counted(method: ff.Method, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", log=FLOAT)
    (leaver,) = first_in(fed, 3)
    cohorts = {round_: fed.cohort(round_) for round_ in range(1, ROUNDS + 1)}
    fed.offline = lambda round_, user: round_ >= 3 and user % 3 == 0
    receipt = fed.forget([leaver], method)
    replayed = range({"retrain": 1, "continue": ROUNDS + 1}.get(method.name, 3), fed.rounds + 1)
    records = [fed.history.record(round_) for round_ in replayed]
    away = sum(len(record.failures) for record in records)
    assert away > 0
    assert receipt.missing == {reasons.NO_RESPONSE: away}
    assert receipt.asked == receipt.answered + away
    assert receipt.answered == sum(len(record.participants) for record in records)
    assert receipt.coverage == receipt.answered / receipt.asked < 1
    for record in records:
        assert all(user % 3 == 0 and reason == reasons.NO_RESPONSE for user, reason in record.failures.items())
        assert not any(user % 3 == 0 and record.round >= 3 for user in record.participants)
        if record.round <= ROUNDS:
            assert sorted([*record.participants, *record.failures]) == [u for u in cohorts[record.round] if u != leaver]
    stored = fed.receipts()[0]
    assert (stored.asked, stored.answered, stored.missing) == (receipt.asked, receipt.answered, receipt.missing)


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
@pytest.mark.parametrize("store", ["memory", "packed", SQLITE])
def test_too_few_devices_leave_everything_as_it_was(method: ff.Method, store: str, tmp_path: Path) -> None:
    path = None if store == "memory" else tmp_path / "run"
    fed = trained(path, log=ff.Log("float32", store="packed" if store == "memory" else store))
    forgotten = first_in(fed, 3)
    digest, private, users = fed.public.digest, privates(fed), fed.train.n_users
    before = {} if path is None else contents(path)
    fed.offline = lambda round_, user: round_ >= 6 and user % 3 == 0
    with pytest.raises(QuorumError, match=r"\d+ of \d+ updates are missing; 90% must arrive"):
        fed.forget(forgotten, method, require=0.9)
    assert (fed.public.digest, privates(fed), fed.train.n_users) == (digest, private, users)
    assert fed.receipts() == []
    if path is not None:
        assert contents(path) == before
    receipt = fed.forget(forgotten, method, require=0.3)
    assert 0.3 <= receipt.coverage < 0.9
    fed.offline = None
    fed.fit(more=1)


def test_a_quorum_counts_the_whole_replay_not_its_first_rounds() -> None:
    """One device of the first replayed round is away: a large share of that round, a small one of the replay."""
    fed = trained()
    forgotten = first_in(fed, 3)
    absent = next(user for user in fed.cohort(3) if user not in forgotten)
    fed.offline = lambda round_, user: round_ == 3 and user == absent
    receipt = fed.forget(forgotten, require=0.95)
    assert receipt.missing == {reasons.NO_RESPONSE: 1}
    assert receipt.coverage > 0.95


@pytest.mark.parametrize("require", [-0.1, 1.5, math.nan])
def test_a_share_that_makes_no_sense_is_refused(require: float, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", rounds=2)
    before = contents(tmp_path / "run")
    with pytest.raises(ff.ConfigError, match=r"require is .*\n.*0 to 1"):
        fed.forget([0], require=require)
    assert contents(tmp_path / "run") == before


def entry_bytes(fed: ff.Federation, round_: int, user: UserId) -> bytes:
    (entry,) = fed.devices.log.store.read(round_, np.array([user_key(user)], np.uint64))
    return entry


def flip(path: Path, entry: bytes) -> None:
    """Flip one bit in the middle of an entry."""
    raw = bytearray(path.read_bytes())
    raw[raw.index(entry) + len(entry) // 2] ^= 4
    path.write_bytes(raw)


@pytest.mark.parametrize("method", [ff.FRU(0.4, stride=1), ff.FRU(0.4, calibration="server")], ids=["device", "server"])
@pytest.mark.parametrize("damage", ["flipped", "cut short"])
def test_a_damaged_log_entry_costs_only_its_own_device(damage: str, method: ff.Method, tmp_path: Path) -> None:
    fed, sound = trained(tmp_path / "run", log=FLOAT), trained(log=FLOAT)
    forgotten = first_in(fed, 3)
    path = tmp_path / "run" / "trajectory-1" / "devices" / "rounds" / "000005.log"
    stored = [user for user in fed.cohort(5) if user not in forgotten]
    keys = [user_key(user) for user in stored]
    if damage == "flipped":
        victim = stored[1]
        flip(path, entry_bytes(fed, 5, victim))
    else:
        order = next(users.tolist() for round_, users, _ in fed.devices.log.store.heads() if round_ == 5)
        victim = stored[max(range(len(keys)), key=lambda place: order.index(keys[place]))]
        entry = entry_bytes(fed, 5, victim)
        raw = path.read_bytes()
        path.write_bytes(raw[: raw.index(entry) + len(entry) - 3])
    receipt = fed.forget(forgotten, method)
    assert receipt.missing == {reasons.ENTRY_DAMAGED: 1}
    assert fed.history.record(5).failures == {victim: reasons.ENTRY_DAMAGED}
    assert fed.cohort(5) == [user for user in stored if user != victim]
    sound.offline = lambda round_, user: (round_, user) == (5, victim)
    sound.forget(forgotten, method)
    assert_same_state(fed, sound)


def test_a_missing_round_file_leaves_its_round_without_participants(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    forgotten = first_in(fed, 3)
    users = [user for user in fed.cohort(5) if user not in forgotten]
    (tmp_path / "run" / "trajectory-1" / "devices" / "rounds" / "000005.log").unlink()
    receipt = fed.forget(forgotten, ff.FRU(stride=1))
    assert receipt.missing == {reasons.NO_ENTRY: len(users)}
    assert fed.history.record(5).failures == dict.fromkeys(users, reasons.NO_ENTRY)
    assert fed.history.snapshot(5).digest == fed.history.snapshot(4).digest
    assert fed.cohort(6)


@pytest.mark.parametrize("damage", ["head flipped", "emptied", "cut in the head"])
def test_a_round_file_whose_head_is_damaged_is_named_and_counts_as_missing(damage: str, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", server=ff.ServerConfig(fraction=0.5))
    forgotten = first_in(fed, 2)
    users = [user for user in fed.cohort(5) if user not in forgotten]
    path = tmp_path / "run" / "trajectory-1" / "devices" / "rounds" / "000005.log"
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1
    path.write_bytes({"head flipped": bytes(raw), "emptied": b"", "cut in the head": bytes(raw[:40])}[damage])
    with pytest.warns(RunWarning, match=r"000005\.log"):
        receipt = fed.forget(forgotten)
    assert receipt.missing == {reasons.NO_ENTRY: len(users)}
    assert fed.history.record(5).failures == dict.fromkeys(users, reasons.NO_ENTRY)
    fed.fit(more=1)


def test_a_damaged_round_file_before_the_first_leaver_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", server=ff.ServerConfig(fraction=0.5))
    (leaver,) = first_in(fed, 4)
    path = tmp_path / "run" / "trajectory-1" / "devices" / "rounds" / "000002.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:30])
    before, digest = contents(tmp_path / "run"), fed.public.digest
    with pytest.raises(ff.RunError, match=r"000002\.log.*\n.*delete it"):
        fed.forget([leaver])
    assert contents(tmp_path / "run") == before
    path.write_bytes(whole)
    assert fed.public.digest == digest
    assert fed.forget([leaver]).first_round == 4


@pytest.mark.filterwarnings("ignore:.*users who took part are missing or damaged:fedforget.errors.RunWarning")
@pytest.mark.parametrize("damage", ["overwritten", "missing", "empty"])
def test_a_damaged_sqlite_log_costs_only_its_own_device(damage: str, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", log=ff.Log(store="sqlite"))
    forgotten = first_in(fed, 3)
    victim = next(user for user in fed.cohort(5) if user not in forgotten)
    times = [round_ for round_ in range(4, ROUNDS + 1) if victim in fed.cohort(round_)]
    fed.close()
    path = tmp_path / "run" / "trajectory-1" / "devices" / f"{user_key(victim):016x}.sqlite"
    for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        name.unlink(missing_ok=True)
    if damage != "missing":
        path.write_bytes(b"" if damage == "empty" else b"no database at all " * 500)
    if damage == "missing":
        fed = ff.Federation.open(tmp_path / "run", DATA)
        receipt = fed.forget(forgotten)
    else:
        with pytest.warns(RunWarning, match=path.name):
            fed = ff.Federation.open(tmp_path / "run", DATA)
        with pytest.warns(RunWarning, match=path.name):
            receipt = fed.forget(forgotten)
    assert receipt.missing == {reasons.NO_ENTRY: len(times)}
    for round_ in range(4, ROUNDS + 1):
        assert fed.history.record(round_).failures == ({victim: reasons.NO_ENTRY} if round_ in times else {})
    assert np.isfinite(fed.public.items).all()
    fed.fit(more=1)


def spoilt(answers: CohortResult, victim: UserId, how: str) -> CohortResult:
    updates = answers.updates
    if victim not in updates.users:
        return answers
    rows, dense, items = updates.rows.copy(), updates.dense.copy(), updates.items.copy()
    client = list(updates.users).index(victim)
    first = int(updates.ptr[client])
    if how == "shape":
        return replace(answers, updates=replace(updates, rows=rows[:, :-1].copy()))
    if how == "item":
        items[first] = 10_000
    else:
        rows[first, 0] = {"nan": np.nan, "infinity": np.inf}[how]
    return replace(answers, updates=replace(updates, rows=rows, dense=dense, items=items))


@pytest.mark.parametrize("method", METHODS[:6], ids=METHOD_IDS[:6])
@pytest.mark.parametrize("how", ["nan", "infinity", "shape", "item"])
def test_updates_that_cannot_be_used_are_refused_and_counted(
    how: str, method: ff.Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = trained(log=FLOAT)
    forgotten = first_in(fed, 3)
    users = [user for user in fed.cohort(5) if user not in forgotten]
    listen(fed, monkeypatch, lambda round_, answers: spoilt(answers, users[1], how) if round_ == 5 else answers)
    receipt = fed.forget(forgotten, method)
    reason = {
        "shape": reasons.WRONG_SHAPE,
        "item": reasons.UNKNOWN_ITEM,
    }.get(how, reasons.NOT_FINITE)
    refused = users if how == "shape" else [users[1]]
    assert fed.history.record(5).failures == dict.fromkeys(refused, reason)
    assert receipt.missing == {reason: len(refused)}
    assert receipt.asked == receipt.answered + len(refused)
    assert np.isfinite(fed.public.items).all()


@pytest.mark.parametrize("how", ["nan", "infinity", "shape"])
def test_a_stored_update_that_cannot_be_used_takes_the_fresh_one_with_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The length must be that of the same devices' old updates whose fresh ones give the direction."""
    fed, other = trained(log=FLOAT), trained(log=FLOAT)
    forgotten = first_in(fed, 3)
    users = [user for user in fed.cohort(5) if user not in forgotten]
    method = ff.FRU(0.4, calibration="server")

    def tamper(round_: int, answers: CohortResult) -> CohortResult:
        if round_ != 5 or answers.stored is None:
            return answers
        return replace(answers, stored=spoilt(CohortResult(answers.stored), users[1], how).updates)

    listen(fed, monkeypatch, tamper)
    receipt = fed.forget(forgotten, method)
    refused = users if how == "shape" else [users[1]]
    assert list(fed.history.record(5).failures) == refused
    assert sum(receipt.missing.values()) == len(refused)
    other.offline = lambda round_, user: round_ == 5 and user in refused
    other.forget(forgotten, method)
    assert fed.history.snapshot(5).digest == other.history.snapshot(5).digest


def test_training_that_diverges_in_a_replay_is_counted_and_keeps_what_was_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = trained()
    forgotten = first_in(fed, 3)
    victim = next(user for user in fed.cohort(ROUNDS) if user not in forgotten)
    train = Devices._train

    def diverging(self: Devices, cohort: Any, plan: Any, public: GlobalParameters, epochs: int, *scale: float) -> Any:
        trainer = self._trainer

        def diverge(plan: Any, *given: Any) -> Any:
            done = trainer(plan, *given)
            if epochs == 2 and victim in cohort.users:
                place = cohort.users.index(victim)
                done.private[place] = np.nan
                done.rows[plan.item_ptr[place] : plan.item_ptr[place + 1]] = np.nan
            return done

        with patch.object(self, "_trainer", diverge):
            return train(self, cohort, plan, public, epochs, *scale)

    monkeypatch.setattr(Devices, "_train", diverging)
    times = [round_ for round_ in range(4, ROUNDS + 1) if victim in fed.cohort(round_)]
    receipt = fed.forget(forgotten, ff.FRU(0.5, stride=1))
    assert receipt.missing == {reasons.DIVERGED: len(times)}
    assert np.isfinite(fed.public.items).all()
    assert np.isfinite(fed.devices.private(victim)).all()


# What is refused


def unchanged(fed: ff.Federation, run: Path, ask: Callable[[], object], error: type[Exception], match: str) -> None:
    """Asking raises this error, with a next step, and changes nothing."""
    before, digest, private = contents(run), fed.public.digest, privates(fed)
    with pytest.raises(error, match=match) as raised:
        ask()
    assert isinstance(raised.value, ff.FedForgetError)
    assert raised.value.hint
    assert contents(run) == before
    assert (fed.public.digest, privates(fed)) == (digest, private)


@pytest.mark.parametrize(
    ("users", "match"),
    [
        ([999], "There is no user 999 in this federation"),
        ([3, 999, 1000], "There is no user 999, 1000 in this federation"),
        (["3"], "There is no user '3' in this federation"),
        ([], r"The request names \[\]"),
        ("3", "The request names '3'"),
        (3, "The request names 3"),
        (b"3", "The request names b'3'"),
        (None, "The request names None"),
        ([3.7], r"3\.7"),
        ([None], "None"),
        ([True], "True"),
        (list(range(40)), "All 40 users are to be forgotten"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_changes_nothing(users: Any, match: str, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", rounds=3)
    unchanged(fed, tmp_path / "run", lambda: fed.forget(users), ff.ConfigError, match)
    unchanged(fed, tmp_path / "run", lambda: fed.estimate(users), ff.ConfigError, match)
    assert fed.fit(more=1).rounds == 4


@pytest.mark.parametrize(
    "users", [[3, 3], (3,), {3}, np.array([3, 3]), {3: "x"}], ids=["twice", "tuple", "set", "array", "dict"]
)
def test_the_same_user_twice_is_once_whatever_holds_the_ids(users: Any) -> None:
    fed, other = trained(rounds=4), trained(rounds=4)
    assert len(fed.forget(users).users) == 1
    other.forget([3])
    assert_same_state(fed, other)


def test_someone_forgotten_before_is_no_longer_known() -> None:
    fed = trained(rounds=3)
    fed.forget([3])
    with pytest.raises(ff.ConfigError, match="There is no user 3 in this federation"):
        fed.forget([3])


@pytest.mark.parametrize("method", [ff.FedRemove(), ff.FRU(calibration="server")], ids=["fedremove", "fru-server"])
def test_lengths_only_logs_refuse_methods_that_need_whole_updates(method: ff.Method, tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", rounds=3)
    match = rf"{method.name} needs whole updates.*lengths only(.|\n)*calibration='device'"
    unchanged(fed, tmp_path / "run", lambda: fed.forget([3], method), ff.ConfigError, match)


@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_a_log_of_another_run_is_refused(store: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        trained(tmp_path / name, rounds=3, log=ff.Log(store=store)).close()
    a, b = (tmp_path / name / "trajectory-1" / "devices" for name in ("a", "b"))
    a.rename(tmp_path / "kept")
    shutil.copytree(b, a)
    before = contents(tmp_path / "a")
    with pytest.raises(ff.RunError, match=r"is a log of another run\.\n.*file of this run"):
        ff.Federation.open(tmp_path / "a", DATA).forget([3])
    assert contents(tmp_path / "a") == before
    shutil.rmtree(a)
    (tmp_path / "kept").rename(a)
    assert ff.Federation.open(tmp_path / "a", DATA).forget([3]).request


@pytest.mark.parametrize("store", STORES)
def test_a_request_from_within_training_is_refused(store: str, tmp_path: Path) -> None:
    fed = build(**where(store, tmp_path))
    errors = []

    def ask(record: Any) -> None:
        with pytest.raises(ff.RunError) as raised:
            fed.forget(fed.cohort(1))
        errors.append(raised.value)

    fed.fit(rounds=3, on_round=ask)
    assert len(errors) == 3
    assert all(error.hint for error in errors)
    assert_same_state(fed, trained(rounds=3))
    assert fed.forget(fed.cohort(1)[:1]).first_round == 1


@pytest.mark.parametrize("store", STORES)
def test_training_and_forgetting_from_within_a_replay_are_refused(store: str, tmp_path: Path) -> None:
    fed, other = trained(**where(store, tmp_path)), trained()
    forgotten = first_in(fed, 3)

    def ask(record: Any) -> None:
        for call in (lambda: fed.fit(more=1), lambda: fed.forget([0]), fed.abandon_forgetting):
            with pytest.raises(ff.RunError):
                call()

    fed.forget(forgotten, on_round=ask)
    other.forget(forgotten)
    assert_same_state(fed, other)


def train_until_told(run: Path, pipe: Any) -> None:
    def wait(record: Any) -> None:
        pipe.send(record.round)
        pipe.recv()

    build(run).fit(rounds=2, on_round=wait)


def test_a_request_while_another_process_trains_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    here, there = processes.Pipe()
    process = processes.Process(target=train_until_told, args=(run, there))
    process.start()
    assert here.recv() == 1
    with pytest.raises(ff.RunError, match=r"Another process is writing to.*\nWait"):
        ff.Federation.open(run, DATA).forget([3])
    assert not (run / "request.json").exists()
    for _ in range(2):
        here.send("go on")
        if _ == 0:
            assert here.recv() == 2
    process.join()
    assert process.exitcode == 0
    fed = ff.Federation.open(run, DATA)
    assert fed.public.digest == trained(rounds=2).public.digest
    fed.forget([3])


def test_a_federation_that_missed_an_erasure_writes_nothing_more(tmp_path: Path) -> None:
    """It was opened before someone else forgot a user in the same folder: it still knows the leaver."""
    run = tmp_path / "run"
    trained(run, rounds=3).close()
    old = ff.Federation.open(run, DATA)
    fed = ff.Federation.open(run, DATA)
    fed.forget([3])
    before = contents(run)
    for call in (lambda: old.fit(more=1), lambda: old.forget([4]), lambda: old.abandon_forgetting()):
        with pytest.raises(ff.RunError, match=r"(?s)forgotten.*\n.*[Oo]pen"):
            call()
    assert contents(run) == before
    old.close()
    assert ff.Federation.open(run, DATA).fit(more=1).rounds == 4


@pytest.mark.parametrize("store", STORES)
def test_an_error_in_the_middle_leaves_the_old_model_and_the_request_can_be_made_again(
    store: str, tmp_path: Path
) -> None:
    fed, other = trained(**where(store, tmp_path)), trained()
    forgotten = first_in(fed, 3)
    digest, private = fed.public.digest, privates(fed)

    def fail(record: Any) -> None:
        if record.round == 5:
            raise OSError("the plot could not be drawn")

    with pytest.raises(OSError, match="plot"):
        fed.forget(forgotten, ff.FRU(stride=2), on_round=fail)
    assert (fed.public.digest, privates(fed), fed.train.n_users) == (digest, private, 40)
    rounds: list[int] = []
    receipt = fed.forget(forgotten, ff.FRU(stride=2), on_round=lambda record: rounds.append(record.round))
    assert rounds == ([3, 4, 5, 6, 7, 8] if store == "memory" else [6, 7, 8])
    expected = other.forget(forgotten, ff.FRU(stride=2))
    assert_same_state(fed, other)
    assert (receipt.asked, receipt.answered, receipt.bytes_up) == (expected.asked, expected.answered, expected.bytes_up)


@pytest.mark.filterwarnings("ignore:.*snapshots are missing:fedforget.errors.RunWarning")
def test_no_snapshot_to_go_back_to_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    forgotten = first_in(fed, 3)
    for round_ in (0, 1, 2):
        (tmp_path / "run" / "trajectory-1" / "snapshots" / f"{round_:06d}.safetensors").unlink()
    unchanged(fed, tmp_path / "run", lambda: fed.forget(forgotten), ff.RunError, r"snapshot.*round 2")
    assert fed.forget(forgotten, ff.Continue()).rounds_added == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"server": ff.ServerConfig(0.25, "root", optimiser=ff.Adam(lr=0.02, horizon=ROUNDS))},
        {"server": ff.ServerConfig(0.25, optimiser=ff.SGD(momentum=0.9))},
        {"model": ff.IALS(dim=8, reg=1.0), "server": ff.ServerConfig(0.25, optimiser=ff.Adam(lr=0.05))},
        {"training": ff.LocalTraining(epochs=3, batch=16, lr=0.01, refit=True)},
    ],
    ids=["adam", "momentum", "ials", "refit"],
)
def test_retrain_leaves_the_state_of_a_federation_that_never_had_them(changes: dict[str, Any]) -> None:
    """Parameters, the optimiser's moments and private parameters, bit for bit: nothing of the forgotten is in them."""
    fed = trained(**changes)
    forgotten = [*first_in(fed, 2), *first_in(fed, 4)]
    cohorts = {
        round_: [user for user in fed.cohort(round_) if user not in forgotten] for round_ in range(1, ROUNDS + 1)
    }
    fed.forget(forgotten, ff.Retrain())
    never = build(train=DATA.without(forgotten), **changes).fit(rounds=ROUNDS, cohorts=cohorts)
    assert_same_state(fed, never)


def test_a_model_without_epochs_is_retrained_unless_told_otherwise_and_refuses_fru() -> None:
    fed = trained(model=ff.IALS(dim=8, reg=1.0))
    forgotten = first_in(fed, 2)
    with pytest.raises(
        ff.ConfigError, match=r"fru shortens local training, but this model has no epochs(.|\n)*Retrain"
    ):
        fed.forget(forgotten, ff.FRU())
    assert fed.forget(forgotten).method["name"] == "retrain"
    assert trained().estimate(forgotten).rounds == trained().estimate(forgotten, ff.FRU()).rounds
