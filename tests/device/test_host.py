"""Hosts: users join, train, and refuse what they did not agree to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedforget.device.host import DIFFERENT, Host
from fedforget.device.log.user_files import UserFiles
from fedforget.device.member import STRANGER, TEST, TRAIN, Member
from fedforget.device.terms import OTHER_MODEL, TOO_LONG, RefusedError
from fedforget.errors import ConfigError
from tests.device.made_hosts import (
    EPOCHS,
    FEDERATION,
    N_ITEMS,
    PLAIN,
    SALT,
    USERS,
    bits,
    entries,
    everything,
    household,
    in_memory,
    logged,
    look,
    on_disk,
    only,
    order,
    path_of,
    private,
    public_of,
    replayed,
    rows,
    sent,
    tables,
    terms_of,
    trained,
)

# Enrolling


def test_a_user_who_joins_has_its_items_in_a_file_of_its_own(host):
    files = UserFiles(host.folder / FEDERATION, FEDERATION)
    member = Member(files, "bob")
    assert member.items(TRAIN).tolist() == [4, 5, 6]
    assert member.items(TEST).tolist() == [7, 8]
    assert member.terms == terms_of()
    files.close()
    assert sorted(on_disk(host)) == sorted([*(path_of(host, user).name for user in USERS), "lock"])


def test_the_order_and_repetition_of_items_do_not_matter(host):
    host.enrol(terms_of(), "dan", [5, 1, 5, 3], [9, 9])
    assert rows(host, "dan", "SELECT item, part FROM interaction ORDER BY item") == [
        (1, "train"), (3, "train"), (5, "train"), (9, "test"),
    ]  # fmt: skip


def test_joining_twice_is_refused_and_changes_nothing(host):
    before = everything(host)
    with pytest.raises(ConfigError, match=r"User 'ann' is enrolled on this device already(.|\n)*delete it"):
        host.enrol(terms_of(), "ann", [5])
    assert everything(host) == before


def test_joining_twice_leaves_no_file_open(host):
    before = on_disk(host)
    with pytest.raises(ConfigError, match="already") as refused:
        host.enrol(terms_of(), "ann", [5])
    assert on_disk(host) == before
    del refused


@pytest.mark.parametrize(
    ("train", "test", "problem"),
    [
        ([], [], "has no items to train on"),
        ([], [1], "has no items to train on"),
        ([0, N_ITEMS], [], "has item 12, but the catalogue has 12"),
        ([0], [10**9], "has item 1000000000, but the catalogue has 12"),
        ([-1, 0], [], "has item -1"),
        ([0, 1, 2], [3, 1], "Item 1 of user 'dan' is both to train on and to test with"),
    ],
)
def test_items_that_cannot_be_are_refused_and_leave_no_file(host, train, test, problem):
    with pytest.raises(ConfigError, match=problem):
        host.enrol(terms_of(), "dan", train, test)
    assert not path_of(host, "dan").exists()
    host.enrol(terms_of(), "dan", [0])


def test_the_number_5_and_the_string_5_are_two_users(tmp_path):
    host = Host(tmp_path)
    host.enrol(terms_of(), 5, [0, 1])
    host.enrol(terms_of(), "5", [2, 3])
    answers = host.train(order(1, 1, 0, users=[5]), sent(1), EPOCHS)
    assert answers.updates.users == [5]
    assert answers.updates.items[:2].tolist() == [0, 1]


@pytest.mark.parametrize("federation", ["../x", "..", ".", "", "/etc", "a/b", "ABCDEF", "0x12", "a b", "é", "a\0"])
def test_a_federation_whose_id_is_not_hexadecimal_is_refused_and_no_folder_made(tmp_path, federation):
    host = Host(tmp_path / "device")
    asked = replace(order(1, 1, 0), federation=federation)
    for ask in (
        lambda: host.enrol(terms_of(federation=federation), "ann", [0]),
        lambda: host.train(asked, sent(1), EPOCHS),
        lambda: host.replay(asked, sent(1), PLAIN),
        lambda: host.recall(asked, N_ITEMS),
        lambda: look(host, asked),
        lambda: host.wipe(federation, SALT, "00"),
    ):
        with pytest.raises(ConfigError, match="is not the id of a federation"):
            ask()
    assert list(tmp_path.iterdir()) == []


# Training


def test_a_household_does_what_devices_in_memory_do(host):
    devices = in_memory(terms_of())
    cohorts = [USERS, ("ann", "cid"), ("bob",), USERS]
    last = dict.fromkeys(USERS, 0)
    for round_, cohort in enumerate(cohorts, start=1):
        asked = replace(order(round_, round_, 0, users=cohort), since=tuple(last[user] for user in cohort))
        asked = replace(asked, served=asked.since)
        mine = host.train(asked, sent(round_), EPOCHS)
        assert bits(mine) == bits(devices.train(round_, public_of(round_), list(cohort), EPOCHS))
        last |= dict.fromkeys(cohort, round_)
    for user in USERS:
        assert entries(host, user) == logged(devices, user)
        assert private(host, user) == devices.private(user).tobytes()


def test_one_of_a_household_does_what_it_does_with_the_others(host, tmp_path):
    alone = household(tmp_path / "alone", users=["bob"])
    for round_ in (1, 2):
        together = host.train(order(round_, round_, round_ - 1), sent(round_), EPOCHS)
        single = alone.train(order(round_, round_, round_ - 1, users=["bob"]), sent(round_), EPOCHS)
        assert bits(single, "bob") == bits(together, "bob")
    assert tables(alone, "bob") == tables(host, "bob")


def test_someone_who_is_not_enrolled_is_a_stranger_and_the_others_answer(host):
    answers = host.train(order(1, 1, 0, users=["ann", "eve", "bob"]), sent(1), EPOCHS)
    assert answers.failures == {"eve": STRANGER}
    assert answers.updates.users == ["ann", "bob"]
    assert not path_of(host, "eve").exists()


def test_a_device_on_which_nobody_is_enrolled_says_so_of_everyone(tmp_path):
    answers = Host(tmp_path).train(order(1, 1, 0), sent(1), EPOCHS)
    assert answers.failures == dict.fromkeys(USERS, STRANGER)
    assert len(answers.updates) == 0


def test_users_of_another_federation_are_strangers_here(host):
    other = "fedcba9876543210"
    host.enrol(terms_of(federation=other), "dan", [0, 1])
    assert host.train(order(1, 1, 0, users=["dan"]), sent(1), EPOCHS).failures == {"dan": STRANGER}
    elsewhere = replace(order(1, 1, 0, users=["dan", "ann"]), federation=other)
    assert host.train(elsewhere, sent(1), EPOCHS).failures == {"ann": STRANGER}


def test_someone_with_other_terms_than_the_first_of_its_device_is_refused(host):
    host.enrol(terms_of(seed=6), "dan", [0, 1])
    answers = host.train(order(1, 1, 0, users=[*USERS, "dan"]), sent(1), EPOCHS)
    assert answers.failures == {"dan": DIFFERENT}
    assert answers.updates.users == list(USERS)


# Orders that ask for too much


@pytest.mark.parametrize("epochs", [EPOCHS + 1, 10**9, 0, -1])
def test_more_epochs_than_agreed_are_refused_and_nothing_is_logged(host, epochs):
    trained(host, 4)
    before = everything(host, but="order")
    answers = host.train(order(5, 5, 4), sent(5), epochs)
    assert answers.failures == dict.fromkeys(USERS, TOO_LONG)
    assert len(answers.updates) == 0
    assert everything(host, but="order") == before
    replay = only(host.replay(replayed(6, 3, 2), sent(3), replace(PLAIN, epochs=epochs)))
    assert replay.failures == dict.fromkeys(USERS, TOO_LONG)


def test_fewer_epochs_than_agreed_are_done(host):
    assert host.train(order(1, 1, 0), sent(1), 1).failures == {}


@pytest.mark.parametrize(
    ("items", "dense"), [((11, 4), 0), ((13, 4), 0), ((12, 5), 0), ((0, 4), 0), ((12, 4), 1)], ids=str
)
def test_a_model_of_another_shape_is_refused_and_nothing_is_logged(host, items, dense):
    trained(host, 4)
    before = everything(host, but="order")
    other = np.zeros(items, np.float32), np.zeros(dense, np.float32)
    answers = host.train(order(5, 5, 4), other, EPOCHS)
    assert answers.failures == dict.fromkeys(USERS, OTHER_MODEL)
    assert everything(host, but="order") == before
    assert only(host.replay(replayed(6, 3, 2), other, PLAIN)).failures == dict.fromkeys(USERS, OTHER_MODEL)
    with pytest.raises(RefusedError, match=OTHER_MODEL), host.looking(order(7, 5, 4), other):
        pytest.fail("a device looked at another model")


def test_a_recall_for_another_number_of_items_is_refused(host):
    trained(host, 4)
    assert host.recall(replayed(5, 3, 2), N_ITEMS + 1).failures == dict.fromkeys(USERS, OTHER_MODEL)
