"""Hosts: orders that are late, repeated or lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedforget.device.host import Host
from fedforget.protocol import reasons
from fedforget.protocol.order import ORIGIN, Lineage
from fedforget.protocol.tasks import Replay
from tests.device.made_hosts import (
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
    recall,
    replayed,
    sent,
    train,
    trained,
)


def test_an_older_order_is_outdated_and_nothing_changes(host):
    trained(host, 2)
    before = on_disk(host)
    for ask in (
        lambda: train(host, order(1, 3, 2), sent(3)),
        lambda: train(host, order(1, 1, 0), sent(1)),
        lambda: only(host.run(PLAIN, replayed(1, 3, 2), sent(3))),
        lambda: recall(host, replayed(1, 3, 2)),
    ):
        answers = ask()
        assert answers.failures == dict.fromkeys(USERS, reasons.OUTDATED)
        assert len(answers.updates) == 0
        assert on_disk(host) == before


def test_an_order_is_older_for_those_alone_who_had_a_newer_one(host):
    trained(host, 1)
    train(host, order(7, 2, 1, users=["ann"]), sent(2))
    answers = train(host, order(5, 2, 1), sent(2))
    assert answers.failures == {"ann": reasons.OUTDATED}
    assert answers.updates.users == ["bob", "cid"]


def test_the_same_order_again_gives_the_same_answer_also_from_a_new_host(host):
    trained(host, 2)
    asked = order(3, 3, 2)
    first = bits(train(host, asked, sent(3)))
    state = everything(host)
    for again in (host, Host(host.folder), host):
        assert bits(train(again, asked, sent(3))) == first
        assert everything(host) == state


@pytest.mark.parametrize(
    "how", [PLAIN, WAITS, Replay(epochs=2), Replay(epochs=3, items="logged", parts="all")], ids=str
)
def test_the_same_replay_again_gives_the_same_answer(host, how):
    trained(host, 4)
    asked = replayed(5, 3, 2)
    first = bits(host.run(how, asked, sent(30)))
    state = everything(host)
    for again in (host, Host(host.folder)):
        assert bits(again.run(how, asked, sent(30))) == first
        assert everything(host) == state


def test_the_same_recall_again_gives_the_same_answer(host):
    trained(host, 4)
    first = bits(recall(host, replayed(5, 3, 2)))
    state = everything(host)
    assert bits(recall(Host(host.folder), replayed(5, 3, 2))) == first
    assert everything(host) == state


@pytest.mark.parametrize("counted", [0, 1, 2, 3])
def test_what_came_too_late_is_undone_as_if_it_had_never_been(host, tmp_path, counted):
    """The server went on without the answer: the device that gave it equals one that was never asked."""
    trained(host, counted)
    spared = copied(host, tmp_path / "spared")
    late = train(host, order(10, counted + 1, counted), sent(9))
    assert len(late.updates) == 3
    asked = order(11, counted + 2, counted)
    mine, other = (train(each, asked, sent(counted + 2)) for each in (host, spared))
    assert bits(mine) == bits(other)
    assert everything(host, but="first") == everything(spared, but="first")
    assert set(entries(host, "ann")) == {*range(1, counted + 1), counted + 2}


def test_each_of_a_household_is_undone_as_far_as_its_own_answers_counted(host, tmp_path):
    trained(host, 1)
    spared = copied(host, tmp_path / "spared")
    train(host, order(10, 2, 1), sent(2))
    train(spared, order(10, 2, 1, users=["bob"]), sent(2))
    asked = replace(order(11, 3, 1), since=(1, 2, 1), served=(1, 2, 1))
    assert bits(train(host, asked, sent(3))) == bits(train(spared, asked, sent(3)))
    assert everything(host) == everything(spared)


@pytest.mark.parametrize("how", [PLAIN, WAITS], ids=["logged", "waiting"])
def test_a_replay_that_came_too_late_is_undone_as_if_it_had_never_been(host, tmp_path, how):
    trained(host, 4)
    look(host, replayed(5, 3, 2))
    spared = copied(host, tmp_path / "spared")
    host.run(how, replayed(6, 3, 2), sent(30))
    assert set(entries(host, "ann", "a")) == {1, 2, 3}
    asked = replayed(7, 4, 2)
    assert bits(host.run(how, asked, sent(40))) == bits(spared.run(how, asked, sent(40)))
    assert everything(host) == everything(spared)


def test_what_came_too_late_on_the_trajectory_in_service_does_not_pass_to_a_new_one(host, tmp_path):
    trained(host, 2)
    spared = copied(host, tmp_path / "spared")
    train(host, order(10, 3, 2), sent(9))
    late: Lineage = (*ORIGIN, ("a", 3))
    asked = order(11, 4, 2, lineage=late, in_service="origin", served=2)
    for each in (host, spared):
        look(each, asked)
    for user in USERS:
        assert set(entries(host, user, "a")) == {1, 2}
        for trajectory in ("origin", "a"):
            assert entries(host, user, trajectory) == entries(spared, user, trajectory)
            assert private(host, user, trajectory) == private(spared, user, trajectory)
