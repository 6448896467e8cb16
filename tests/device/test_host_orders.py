"""Hosts: orders that are late, repeated or lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedforget.device.host import Host
from fedforget.device.member import OUTDATED
from fedforget.orders import ORIGIN, Lineage
from fedforget.replay import Replay
from tests.device.made_hosts import (
    EPOCHS,
    N_ITEMS,
    PLAIN,
    USERS,
    WAITS,
    bits,
    copied,
    entries,
    everything,
    look,
    on_disk,
    only,
    order,
    private,
    replayed,
    sent,
    trained,
)


def test_an_older_order_is_outdated_and_nothing_changes(host):
    trained(host, 2)
    before = on_disk(host)
    for ask in (
        lambda: host.train(order(1, 3, 2), sent(3), EPOCHS),
        lambda: host.train(order(1, 1, 0), sent(1), EPOCHS),
        lambda: only(host.replay(replayed(1, 3, 2), sent(3), PLAIN)),
        lambda: host.recall(replayed(1, 3, 2), N_ITEMS),
    ):
        answers = ask()
        assert answers.failures == dict.fromkeys(USERS, OUTDATED)
        assert len(answers.updates) == 0
        assert on_disk(host) == before


def test_an_order_is_older_for_those_alone_who_had_a_newer_one(host):
    trained(host, 1)
    host.train(order(7, 2, 1, users=["ann"]), sent(2), EPOCHS)
    answers = host.train(order(5, 2, 1), sent(2), EPOCHS)
    assert answers.failures == {"ann": OUTDATED}
    assert answers.updates.users == ["bob", "cid"]


def test_the_same_order_again_gives_the_same_answer_also_from_a_new_host(host):
    trained(host, 2)
    asked = order(3, 3, 2)
    first = bits(host.train(asked, sent(3), EPOCHS))
    state = everything(host)
    for again in (host, Host(host.folder), host):
        assert bits(again.train(asked, sent(3), EPOCHS)) == first
        assert everything(host) == state


@pytest.mark.parametrize(
    "how", [PLAIN, WAITS, Replay(epochs=2), Replay(epochs=3, items="logged", parts="all")], ids=str
)
def test_the_same_replay_again_gives_the_same_answer(host, how):
    trained(host, 4)
    asked = replayed(5, 3, 2)
    first = bits(host.replay(asked, sent(30), how))
    state = everything(host)
    for again in (host, Host(host.folder)):
        assert bits(again.replay(asked, sent(30), how)) == first
        assert everything(host) == state


def test_the_same_recall_again_gives_the_same_answer(host):
    trained(host, 4)
    first = bits(host.recall(replayed(5, 3, 2), N_ITEMS))
    state = everything(host)
    assert bits(Host(host.folder).recall(replayed(5, 3, 2), N_ITEMS)) == first
    assert everything(host) == state


@pytest.mark.parametrize("counted", [0, 1, 2, 3])
def test_what_came_too_late_is_undone_as_if_it_had_never_been(host, tmp_path, counted):
    """The server went on without the answer: the device that gave it equals one that was never asked."""
    trained(host, counted)
    spared = copied(host, tmp_path / "spared")
    late = host.train(order(10, counted + 1, counted), sent(9), EPOCHS)
    assert len(late.updates) == 3
    asked = order(11, counted + 2, counted)
    mine, other = (each.train(asked, sent(counted + 2), EPOCHS) for each in (host, spared))
    assert bits(mine) == bits(other)
    assert everything(host) == everything(spared)
    assert set(entries(host, "ann")) == {*range(1, counted + 1), counted + 2}


def test_each_of_a_household_is_undone_as_far_as_its_own_answers_counted(host, tmp_path):
    trained(host, 1)
    spared = copied(host, tmp_path / "spared")
    host.train(order(10, 2, 1), sent(2), EPOCHS)
    spared.train(order(10, 2, 1, users=["bob"]), sent(2), EPOCHS)
    asked = replace(order(11, 3, 1), since=(1, 2, 1), served=(1, 2, 1))
    assert bits(host.train(asked, sent(3), EPOCHS)) == bits(spared.train(asked, sent(3), EPOCHS))
    assert everything(host) == everything(spared)


@pytest.mark.parametrize("how", [PLAIN, WAITS], ids=["logged", "waiting"])
def test_a_replay_that_came_too_late_is_undone_as_if_it_had_never_been(host, tmp_path, how):
    trained(host, 4)
    look(host, replayed(5, 3, 2))
    spared = copied(host, tmp_path / "spared")
    host.replay(replayed(6, 3, 2), sent(30), how)
    assert set(entries(host, "ann", "a")) == {1, 2, 3}
    asked = replayed(7, 4, 2)
    assert bits(host.replay(asked, sent(40), how)) == bits(spared.replay(asked, sent(40), how))
    assert everything(host) == everything(spared)


def test_what_came_too_late_on_the_trajectory_in_service_does_not_pass_to_a_new_one(host, tmp_path):
    trained(host, 2)
    spared = copied(host, tmp_path / "spared")
    host.train(order(10, 3, 2), sent(9), EPOCHS)
    late: Lineage = (*ORIGIN, ("a", 3))
    asked = order(11, 4, 2, lineage=late, in_service="origin", served=2)
    for each in (host, spared):
        look(each, asked)
    for user in USERS:
        assert set(entries(host, user, "a")) == {1, 2}
        for trajectory in ("origin", "a"):
            assert entries(host, user, trajectory) == entries(spared, user, trajectory)
            assert private(host, user, trajectory) == private(spared, user, trajectory)
