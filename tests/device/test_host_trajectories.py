"""Hosts: following a federation from trajectory to trajectory."""

from __future__ import annotations

import pytest

import fedforget as ff
from fedforget.protocol import reasons
from fedforget.protocol.order import ORIGIN, Lineage
from fedforget.protocol.tasks import Replay
from tests.device.made_hosts import (
    FORK,
    PLAIN,
    USERS,
    WAITS,
    bits,
    branched,
    copied,
    entries,
    everything,
    household,
    in_memory,
    logged,
    look,
    order,
    path_of,
    private,
    public_of,
    recall,
    replayed,
    sent,
    tables,
    terms_of,
    train,
    train_in_memory,
    trained,
    trajectories,
)


def test_a_new_trajectory_begins_with_what_came_before_it_branched_off(host):
    trained(host, 4)
    old = {user: tables(host, user) for user in USERS}
    look(host, replayed(5, 3, 2))
    for user in USERS:
        assert entries(host, user, "a") == {round_: entries(host, user)[round_] for round_ in (1, 2)}
        for table in ("entry", "private"):
            assert [row for row in tables(host, user)[table] if row[0] == "origin"] == old[user][table]


@pytest.mark.parametrize("log", [ff.Log("float32"), ff.Log("float16", "importance"), ff.Log("lengths")], ids=str)
@pytest.mark.parametrize("until", [0, 1, 3, 4])
def test_on_a_new_trajectory_private_parameters_are_what_a_branch_in_memory_has(tmp_path, log, until):
    host, devices = trained(household(tmp_path, terms_of(log=log)), 4), in_memory(terms_of(log=log))
    for round_ in range(1, 5):
        train_in_memory(devices, round_, public_of(round_))
    new = branched(devices, until)
    lineage: Lineage = (*ORIGIN, ("a", until))
    asked = order(5, until + 1, until, lineage=lineage, in_service="origin", served=4)
    mine = host.run(Replay(epochs=2), asked, sent(9)) if until < 4 else train(host, asked, sent(9))
    theirs = (
        new.replay({until + 1: list(USERS)}, public_of(9), Replay(epochs=2))[until + 1]
        if until < 4
        else train_in_memory(new, until + 1, public_of(9))
    )
    assert bits(mine) == bits(theirs)
    for user in USERS:
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_a_whole_replay_is_what_devices_in_memory_do(host):
    trained(host, 4)
    devices = in_memory(terms_of())
    for round_ in range(1, 5):
        train_in_memory(devices, round_, public_of(round_))
    new = branched(devices, 2)
    for round_, how in ((3, Replay(epochs=2)), (4, Replay(epochs=1, items="logged", parts="all"))):
        mine = host.run(how, replayed(round_ + 2, round_, round_ - 1), sent(round_ * 10))
        assert bits(mine) == bits(new.replay({round_: list(USERS)}, public_of(round_ * 10), how)[round_])
    on = train(host, order(7, 5, 4, lineage=FORK), sent(5))
    assert bits(on) == bits(train_in_memory(new, 5, public_of(5)))
    for user in USERS:
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_a_recall_is_what_devices_in_memory_do(host):
    trained(host, 4)
    devices = in_memory(terms_of())
    for round_ in range(1, 5):
        train_in_memory(devices, round_, public_of(round_))
    new = branched(devices, 2)
    assert bits(recall(host, replayed(5, 3, 2))) == bits(new.recall(3, list(USERS)))
    assert entries(host, "ann", "a")[3] == logged(new, "ann")[3]
    assert private(host, "ann", "a") == new.private("ann").tobytes()


def test_the_old_trajectory_is_dropped_when_the_new_one_is_in_service(host):
    trained(host, 4)
    look(host, replayed(5, 3, 2))
    assert trajectories(host, "ann") == {"origin", "a"}
    look(host, order(6, 3, 2, lineage=FORK))
    assert trajectories(host, "ann") == {"a"}
    assert b"origin" not in path_of(host, "ann").read_bytes()


@pytest.mark.parametrize(("first", "second", "kept"), [(3, 2, 2), (1, 3, 1), (2, 2, 2), (0, 4, 0)])
@pytest.mark.parametrize("in_service", ["a", "b"])
def test_a_device_that_missed_a_trajectory_keeps_what_both_have_kept(host, first, second, kept, in_service):
    trained(host, 4)
    lineage: Lineage = (*ORIGIN, ("a", first), ("b", second))
    look(host, order(5, 5, 9, lineage=lineage, in_service=in_service, served=9))
    assert set(entries(host, "ann", "b")) == set(range(1, kept + 1))
    assert trajectories(host, "ann") <= {in_service, "b"}


def test_a_device_that_missed_a_trajectory_is_like_one_that_saw_it_begin(host, tmp_path):
    trained(host, 4)
    witness = copied(host, tmp_path / "witness")
    look(witness, order(5, 4, 3, lineage=(*ORIGIN, ("a", 3)), in_service="origin", served=4))
    lineage: Lineage = (*ORIGIN, ("a", 3), ("b", 2))
    asked = order(6, 3, 2, lineage=lineage)
    assert bits(train(host, asked, sent(6))) == bits(train(witness, asked, sent(6)))


def test_a_trajectory_that_was_given_up_is_dropped(host):
    trained(host, 4)
    before = everything(host, but="order")
    host.run(WAITS, replayed(5, 3, 2), sent(30))
    look(host, order(6, 5, 4))
    assert {user: {**tables(host, user, but="order"), "meta": 0} for user in USERS} == {
        user: {**found, "meta": 0} for user, found in before.items()
    }
    assert trajectories(host, "ann") == {"origin"}


def test_a_trajectory_that_was_given_up_for_another_is_dropped(host):
    trained(host, 4)
    host.run(WAITS, replayed(5, 3, 2), sent(30))
    look(host, order(6, 2, 1, lineage=(*ORIGIN, ("b", 1)), in_service="origin", served=4))
    assert trajectories(host, "ann") == {"origin", "b"}


def test_a_trajectory_that_was_given_up_for_another_leaves_no_mark_on_it(host, tmp_path):
    trained(host, 4)
    spared = copied(host, tmp_path / "spared")
    host.run(PLAIN, replayed(5, 3, 2), sent(30))
    asked = order(6, 2, 1, lineage=(*ORIGIN, ("b", 1)), in_service="origin", served=4)
    assert bits(host.run(PLAIN, asked, sent(20))) == bits(spared.run(PLAIN, asked, sent(20)))
    assert entries(host, "ann", "b") == entries(spared, "ann", "b")


@pytest.mark.parametrize("lineage", [ORIGIN, (*ORIGIN, ("b", 1)), (("elsewhere", 0),)], ids=str)
def test_a_server_that_does_not_know_where_the_device_has_been_is_refused(host, lineage):
    trained(host, 2)
    look(host, order(5, 3, 2, lineage=FORK))
    before = everything(host, but="order")
    answers = train(host, order(6, 3, 1, lineage=lineage), sent(3))
    assert answers.failures == dict.fromkeys(USERS, reasons.UNKNOWN_TRAJECTORY)
    assert everything(host, but="order") == before
