"""Hosts: users join, train, and refuse what they did not agree to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.host import Host
from fedforget.device.log.user_files import UserFiles
from fedforget.device.member import TEST, TRAIN, Member
from fedforget.errors import ConfigError
from fedforget.protocol import reasons
from fedforget.protocol.terms import RefusedError
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
    recall,
    replayed,
    rows,
    sent,
    tables,
    terms_of,
    train,
    train_in_memory,
    trained,
)

# Enrolling


def test_a_user_who_joins_has_its_items_in_a_file_of_its_own(host):
    files = UserFiles(host.folder / FEDERATION, FEDERATION)
    member = Member(files, "bob")
    assert member.items(TRAIN)[0].tolist() == [4, 5, 6]
    assert member.items(TEST)[0].tolist() == [7, 8]
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
    with pytest.raises(ConfigError, match=r"User 'ann' is enrolled on this device already(.|\n)*flower wipe"):
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
        ([0, 1, 2], [3, 1], "Item 1 of user 'dan' is in both the training and the test items"),
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
    answers = train(host, order(1, 1, 0, users=[5]), sent(1))
    assert answers.updates.users == [5]
    assert answers.updates.items[:2].tolist() == [0, 1]


@pytest.mark.parametrize("federation", ["../x", "..", ".", "", "/etc", "a/b", "ABCDEF", "0x12", "a b", "é", "a\0"])
def test_a_federation_whose_id_is_not_hexadecimal_is_refused_and_no_folder_made(tmp_path, federation):
    host = Host(tmp_path / "device")
    asked = replace(order(1, 1, 0), federation=federation)
    for ask in (
        lambda: host.enrol(terms_of(federation=federation), "ann", [0]),
        lambda: train(host, asked, sent(1)),
        lambda: host.run(PLAIN, asked, sent(1)),
        lambda: recall(host, asked),
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
        mine = train(host, asked, sent(round_))
        assert bits(mine) == bits(train_in_memory(devices, round_, public_of(round_), cohort))
        last |= dict.fromkeys(cohort, round_)
    for user in USERS:
        assert entries(host, user) == logged(devices, user)
        assert private(host, user) == devices.private(user).tobytes()


def test_one_of_a_household_does_what_it_does_with_the_others(host, tmp_path):
    alone = household(tmp_path / "alone", users=["bob"])
    for round_ in (1, 2):
        together = train(host, order(round_, round_, round_ - 1), sent(round_))
        single = train(alone, order(round_, round_, round_ - 1, users=["bob"]), sent(round_))
        assert bits(single, "bob") == bits(together, "bob")
    assert tables(alone, "bob") == tables(host, "bob")


def test_someone_who_is_not_enrolled_is_a_stranger_and_the_others_answer(host):
    answers = train(host, order(1, 1, 0, users=["ann", "eve", "bob"]), sent(1))
    assert answers.failures == {"eve": reasons.NOT_ENROLLED}
    assert answers.updates.users == ["ann", "bob"]
    assert not path_of(host, "eve").exists()


def test_a_device_on_which_nobody_is_enrolled_says_so_of_everyone(tmp_path):
    answers = train(Host(tmp_path), order(1, 1, 0), sent(1))
    assert answers.failures == dict.fromkeys(USERS, reasons.NOT_ENROLLED)
    assert len(answers.updates) == 0


def test_users_of_another_federation_are_strangers_here(host):
    other = "fedcba9876543210"
    host.enrol(terms_of(federation=other), "dan", [0, 1])
    assert train(host, order(1, 1, 0, users=["dan"]), sent(1)).failures == {"dan": reasons.NOT_ENROLLED}
    elsewhere = replace(order(1, 1, 0, users=["dan", "ann"]), federation=other)
    assert train(host, elsewhere, sent(1)).failures == {"ann": reasons.NOT_ENROLLED}


def test_someone_with_other_terms_than_the_first_of_its_device_is_refused(host):
    host.enrol(terms_of(seed=6), "dan", [0, 1])
    answers = train(host, order(1, 1, 0, users=[*USERS, "dan"]), sent(1))
    assert answers.failures == {"dan": reasons.DIFFERENT_TERMS}
    assert answers.updates.users == list(USERS)


# Orders that ask for too much


@pytest.mark.parametrize("epochs", [EPOCHS + 1, 10**9, 0, -1])
def test_more_epochs_than_agreed_are_refused_and_nothing_is_logged(host, epochs):
    trained(host, 4)
    before = everything(host, but="order")
    answers = train(host, order(5, 5, 4), sent(5), epochs)
    assert answers.failures == dict.fromkeys(USERS, reasons.TOO_MANY_EPOCHS)
    assert len(answers.updates) == 0
    assert everything(host, but="order") == before
    replay = only(host.run(replace(PLAIN, epochs=epochs), replayed(6, 3, 2), sent(3)))
    assert replay.failures == dict.fromkeys(USERS, reasons.TOO_MANY_EPOCHS)


def test_fewer_epochs_than_agreed_are_done(host):
    assert train(host, order(1, 1, 0), sent(1), 1).failures == {}


@pytest.mark.parametrize(
    ("items", "dense"), [((11, 4), 0), ((13, 4), 0), ((12, 5), 0), ((0, 4), 0), ((12, 4), 1)], ids=str
)
def test_a_model_of_another_shape_is_refused_and_nothing_is_logged(host, items, dense):
    trained(host, 4)
    before = everything(host, but="order")
    other = np.zeros(items, np.float32), np.zeros(dense, np.float32)
    answers = train(host, order(5, 5, 4), other)
    assert answers.failures == dict.fromkeys(USERS, reasons.OTHER_MODEL)
    assert everything(host, but="order") == before
    assert only(host.run(PLAIN, replayed(6, 3, 2), other)).failures == dict.fromkeys(USERS, reasons.OTHER_MODEL)
    with pytest.raises(RefusedError, match=reasons.OTHER_MODEL):
        host.evaluate(order(7, 5, 4), other)


@pytest.mark.parametrize(
    "sizes",
    [
        ((0, N_ITEMS + 1),),
        ((0, N_ITEMS - 1), (3, N_ITEMS)),
        ((1, N_ITEMS),),
        ((0, N_ITEMS), (3, N_ITEMS)),
        ((0, N_ITEMS), (3, N_ITEMS + 2), (3, N_ITEMS + 3)),
        ((0, N_ITEMS), (3, N_ITEMS + 2), (4, N_ITEMS + 1)),
    ],
)
def test_a_catalogue_that_does_not_begin_as_agreed_or_does_not_grow_is_refused(host, sizes):
    trained(host, 4)
    before = everything(host)
    answers = train(host, replace(order(5, 5, 4), sizes=sizes), sent(5))
    assert answers.failures == dict.fromkeys(USERS, reasons.OTHER_MODEL)
    assert everything(host) == before


def test_a_catalogue_that_shrinks_is_refused_and_nothing_is_lost(host):
    trained(host, 4)
    grown = ff.MF(dim=4).init_public(N_ITEMS + 2, seed=5)
    bigger = replace(order(5, 5, 4), sizes=((0, N_ITEMS), (5, N_ITEMS + 2)))
    assert len(train(host, bigger, (grown.items, grown.dense)).updates) == len(USERS)
    before = everything(host)
    for sizes in ((), ((0, N_ITEMS), (5, N_ITEMS + 1))):
        answers = train(host, replace(order(6, 6, 5), sizes=sizes), sent(6))
        assert answers.failures == dict.fromkeys(USERS, reasons.FEWER_ITEMS)
    assert everything(host) == before
