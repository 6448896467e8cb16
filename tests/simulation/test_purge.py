"""After forgetting, a search of the whole run folder finds nothing of who left, and everything of who stayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff
from fedforget.runtime.randomness import UserId
from tests.small_federations import DATA, Traces, build, first_in, named

NAMED = named()
#: Users with nothing else in common than that the search must find them before, and find only remaining after.
LATE, NEVER = 7, 11
METHODS = [ff.FRU(0.4), ff.FRU(0.4, calibration="server", replay="logged"), ff.FedRemove(), ff.Retrain(), ff.Continue()]
METHOD_IDS = ["fru", "fru-server-logged", "fedremove", "retrain", "continue"]


def every_trace(run: Path, data: ff.Interactions, **changes: Any) -> tuple[ff.Federation, Traces]:
    """A federation with late joiners, malicious users, absent devices and evaluations, and all traces of its users."""
    users = data.user_ids.tolist()
    train, test = data.split(0.2, seed=1)
    traces = Traces(users)
    fed = build(
        run, train, joins={users[LATE]: 3, users[NEVER]: 99}, attack=ff.Attack([users[0], users[1], users[2]]),
        offline=lambda round_, user: (round_ + users.index(user)) % 4 == 0, **changes,
    )  # fmt: skip
    fed.fit(rounds=6, test=test, evaluate_every=2, on_round=lambda record: traces.gather(fed))
    return fed, traces


def failed_sometimes(fed: ff.Federation) -> UserId:
    """A user whose device did not answer in some round before it first took part."""
    for round_ in range(1, fed.rounds + 1):
        for user in fed.history.record(round_).failures:
            first = fed.history.first_round_of([user])
            if first is not None and first > round_:
                return user
    raise AssertionError("there is no such user")


def some_leavers(fed: ff.Federation, users: list[UserId]) -> list[UserId]:
    """A malicious one, a late joiner, one who never took part, one who failed before, and one like any other."""
    chosen = [users[1], users[LATE], users[NEVER], failed_sometimes(fed), *first_in(fed, 3)]
    return list(dict.fromkeys(chosen))


def assert_purged(run: Path, traces: Traces, forgotten: list[UserId]) -> None:
    assert {user: traces.left_in(run, user) for user in forgotten} == {user: set() for user in forgotten}


@pytest.mark.parametrize(
    ("method", "store"),
    [
        *((method, "packed") for method in METHODS),
        (METHODS[0], "sqlite"),
        pytest.param(METHODS[-1], "sqlite", marks=pytest.mark.slow),
    ],
    ids=[*METHOD_IDS, "fru in sqlite", "continue in sqlite"],
)
def test_no_file_knows_anything_of_a_leaver(method: ff.Method, store: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fed, traces = every_trace(run, NAMED, log=ff.Log("float32", store=store))
    users = NAMED.user_ids.tolist()
    forgotten = some_leavers(fed, users)
    assert len(forgotten) >= 4
    for user in forgotten:
        where = {name.split("/")[-1] for name, _ in traces.left_in(run, user)}
        assert "history.sqlite:member" in where
        assert user in (users[NEVER],) or "history.sqlite:participant" in where
    assert {"config.toml"} <= {name for user in forgotten for name, _ in traces.left_in(run, user)}
    fed.forget(forgotten, method)
    assert_purged(run, traces, forgotten)
    fed.fit(more=2)
    fed.close()
    assert_purged(run, traces, forgotten)
    again = ff.Federation.open(run, NAMED.split(0.2, seed=1)[0])
    again.forget(first_in(again, 2), method)
    assert_purged(run, traces, forgotten)


@pytest.mark.parametrize("encoding", ["lengths", "int8", "float16"])
def test_no_encoding_leaves_a_trace(encoding: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fed, traces = every_trace(run, NAMED, log=ff.Log(encoding))
    forgotten = some_leavers(fed, NAMED.user_ids.tolist())
    fed.forget(forgotten, ff.FRU(0.4))
    assert_purged(run, traces, forgotten)


@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_the_search_finds_what_remaining_users_have(store: str, tmp_path: Path) -> None:
    """Rounds before the first leaver stay as they were, so what remaining left there must be found."""
    run = tmp_path / "run"
    fed, _ = every_trace(run, NAMED, log=ff.Log("float32", store=store))
    users = NAMED.user_ids.tolist()
    fed.forget([users[LATE]])
    stayer = next(user for user in fed.cohort(fed.rounds) if user != users[LATE])
    now = Traces([stayer])
    now.gather(fed)
    fed.close()
    found = now.left_in(run, stayer)
    assert now.of(stayer) >= {trace for _, trace in found} - {b""}
    in_log = {trace for name, trace in found if "devices" in name}
    private = fed.devices.private(stayer).tobytes()
    assert {private[:16], private[16:]} <= in_log
    assert len(in_log) > 20
    assert {"trajectory-2/history.sqlite:member", "trajectory-2/history.sqlite:participant"} <= {n for n, _ in found}
    malicious = Traces([users[1]])
    assert "config.toml" in {name for name, _ in malicious.left_in(run, users[1])}


@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_no_table_knows_a_leaver_by_its_number(store: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    users, items = DATA.pairs()
    data = ff.Interactions.from_pairs(users + 7_340_000, DATA.item_ids[items]).with_items(DATA.item_ids)
    fed, traces = every_trace(run, data, log=ff.Log(store=store))
    forgotten = some_leavers(fed, data.user_ids.tolist())
    fed.forget(forgotten)
    fed.close()
    assert_purged(run, traces, forgotten)
    stayer = next(iter(fed.train.user_ids.tolist()))
    assert "trajectory-2/history.sqlite:member" in {name for name, _ in traces.left_in(run, stayer)}


def test_the_receipt_says_who_left_only_to_whoever_knows_id_and_salt(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fed, _ = every_trace(run, NAMED)
    leaver = first_in(fed, 3)[0]
    receipt = fed.forget([leaver])
    assert receipt.salt is not None
    assert receipt.names(leaver)
    assert not receipt.names(fed.train.user_ids.tolist()[0])
    (stored,) = fed.receipts()
    assert stored.salt is None
    assert stored.names(leaver, receipt.salt)
    salt = receipt.salt.encode()
    assert [path for path in run.rglob("*") if path.is_file() and salt in path.read_bytes()] == []
    assert receipt.salt not in repr(receipt) + str(receipt)


def test_the_losses_and_counts_of_the_metrics_are_those_of_remaining_users(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fed, _ = every_trace(run, NAMED)
    user = failed_sometimes(fed)
    fed.forget([user])
    lines = fed._run.current.metrics.read()
    assert [line["round"] for line in lines] == list(range(1, fed.rounds + 1))
    for line in lines:
        record = fed.history.record(line["round"])
        assert user not in record.failures
        assert (line["clients"], line["failures"]) == (len(record.participants), len(record.failures))


def test_what_is_in_memory_forgets_too() -> None:
    fed, traces = every_trace(None, NAMED, log=ff.Log("float32"))  # type: ignore[arg-type]
    users = NAMED.user_ids.tolist()
    forgotten = some_leavers(fed, users)
    fed.forget(forgotten)
    gone = {user_key for user in forgotten for user_key in traces.of(user) if len(user_key) == 8}
    assert not set(fed.history.membership.users()) & set(forgotten)
    assert not any({*fed.cohort(r), *fed.history.record(r).failures} & set(forgotten) for r in range(1, fed.rounds + 1))
    for _, keys, _ in fed.devices.log.store.heads():
        assert not {key.to_bytes(8, "little") for key in keys.tolist()} & gone
    known = fed.devices.log.store.private_state(fed.rounds).keys
    assert not {key.to_bytes(8, "little") for key in known.tolist()} & gone
    assert not np.isin(fed.train.user_ids, forgotten).any()
    assert not set(fed.config.joins) & set(forgotten)
    assert fed.config.attack is not None
    assert not set(fed.config.attack.users) & set(forgotten)
