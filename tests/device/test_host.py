"""Host: the users of a device on a network. Whatever is lost, late, repeated or killed, its answers stay the same."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.host import DAMAGED, DIFFERENT, OTHER_MODEL, TOO_LONG, Host
from fedforget.device.log.memory import MemoryStore
from fedforget.device.log.user_files import UserFiles
from fedforget.device.member import OUTDATED, STRANGER, TEST, TRAIN, UNKNOWN_PAST, Member, RefusedError
from fedforget.device.terms import Terms
from fedforget.errors import ConfigError
from fedforget.models import Public, Recommender
from fedforget.orders import ORIGIN, Lineage, Order
from fedforget.pseudonym import pseudonym
from fedforget.randomness import UserId, user_key
from fedforget.replay import Factors, Replay
from fedforget.updates import Answers, Updates
from tests.deadly import deadly_at

FEDERATION = "0123456789abcdef"
N_ITEMS = 12
EPOCHS = 3
#: What each of the household trains on, and what it keeps back.
HOUSEHOLD: dict[str, tuple[list[int], list[int]]] = {
    "ann": ([0, 1, 2], [3]),
    "bob": ([4, 5, 6], [7, 8]),
    "cid": ([0, 8, 9, 10], []),
}
USERS = tuple(HOUSEHOLD)
SALT = "00ff" * 8
PLAIN = Replay(epochs=2, parts=None)
WAITS = Replay(epochs=2, items="logged", parts=None, stored=True)
#: The federation forgets somebody, and goes through its rounds again from the third on.
FORK: Lineage = (*ORIGIN, ("a", 2))

#: Forks from a process that has imported everything and started no thread.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.device.test_host"])


def terms_of(model: Recommender | None = None, log: ff.Log | None = None, **changes: Any) -> Terms:
    training = ff.LocalTraining(epochs=EPOCHS, batch=4, lr=0.05)
    terms = Terms(FEDERATION, N_ITEMS, model or ff.MF(dim=4), ff.Sampler(), training, log or ff.Log("float32"), seed=5)
    return replace(terms, **changes)


def household(folder: Path, terms: Terms | None = None, users: Sequence[str] = USERS) -> Host:
    host = Host(folder)
    for user in users:
        host.enrol(terms or terms_of(), user, *HOUSEHOLD[user])
    return host


@pytest.fixture
def host(tmp_path) -> Host:
    return household(tmp_path / "device")


def public_of(round_: int, model: Recommender | None = None) -> Public:
    """What the server sends in a round."""
    return (model or ff.MF(dim=4)).init_public(N_ITEMS, seed=round_)


def sent(round_: int, model: Recommender | None = None) -> tuple[np.ndarray, np.ndarray]:
    public = public_of(round_, model)
    return public.items, public.dense


def order(
    number: int,
    round_: int,
    since: int,
    *,
    users: Sequence[UserId] = USERS,
    lineage: Lineage = ORIGIN,
    in_service: str | None = None,
    served: int | None = None,
    factors: Mapping[tuple[str, int], Factors] | None = None,
) -> Order:
    """An order to users who all have the same past."""
    counted = since if served is None else served
    return Order(
        FEDERATION, number, lineage, in_service or lineage[-1][0], round_, tuple(users), (since,) * len(users),
        (counted,) * len(users), factors or {},
    )  # fmt: skip


def trained(host: Host, rounds: int, users: Sequence[UserId] = USERS) -> Host:
    """A host whose users took part in so many rounds, all of which counted."""
    for round_ in range(1, rounds + 1):
        host.train(order(round_, round_, round_ - 1, users=users), sent(round_), EPOCHS)
    return host


def replayed(number: int, round_: int, since: int, **changes: Any) -> Order:
    """An order to replay a round on the new trajectory, after four rounds on the old one."""
    return order(number, round_, since, lineage=FORK, in_service="origin", served=4, **changes)


def copied(host: Host, folder: Path) -> Host:
    """A device in the same state."""
    shutil.copytree(host.folder, folder)
    return Host(folder)


def look(host: Host, given: Order) -> None:
    """Have an order followed without any training."""
    with host.looking(given, sent(given.round)):
        pass


# What can be seen of a device


def bits_of(updates: Updates | None) -> list[Any]:
    if updates is None:
        return []
    parts = (updates.ptr, updates.items, updates.rows, updates.dense, updates.sizes, updates.losses)
    return [list(updates.users), *(part.tobytes() for part in parts)]


def bits(answers: Answers, *users: UserId) -> list[Any]:
    """All that a device answered, to the bit; or what it answered for some of its users."""
    if users:
        return bits_of(Updates.together([answers.updates], users))
    return [bits_of(answers.updates), dict(answers.failures), bits_of(answers.stored)]


def path_of(host: Host, user: UserId) -> Path:
    return host.folder / FEDERATION / f"{user_key(user):016x}.sqlite"


def rows(host: Host, user: UserId, query: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path_of(host, user))) as db:
        return db.execute(query, values).fetchall()


def entries(host: Host, user: UserId, trajectory: str = "origin") -> dict[int, bytes]:
    return dict(rows(host, user, "SELECT round, body FROM entry WHERE trajectory = ?", trajectory))


def private(host: Host, user: UserId, trajectory: str = "origin") -> bytes:
    query = "SELECT row FROM private WHERE trajectory = ? ORDER BY round DESC LIMIT 1"
    return rows(host, user, query, trajectory)[0][0]


def tables(host: Host, user: UserId, *, but: str = "") -> dict[str, list[tuple[Any, ...]]]:
    """Everything in a user's file but for one value of ``meta``."""
    names = ("interaction", "entry", "private", "pending")
    found = {name: rows(host, user, f"SELECT * FROM {name} ORDER BY 1, 2") for name in names}
    return found | {"meta": [pair for pair in rows(host, user, "SELECT * FROM meta ORDER BY 1") if pair[0] != but]}


def everything(host: Host, users: Sequence[UserId] = USERS, *, but: str = "") -> dict[UserId, Any]:
    return {user: tables(host, user, but=but) for user in users}


def on_disk(host: Host) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((host.folder / FEDERATION).iterdir())}


def trajectories(host: Host, user: UserId) -> set[str]:
    """Those that anything in a user's file belongs to."""
    query = " UNION ".join(f"SELECT trajectory FROM {table}" for table in ("entry", "private", "pending"))
    return {name for (name,) in rows(host, user, query)}


# The same without a network


def in_memory(terms: Terms, users: Sequence[str] = USERS) -> Devices:
    """The devices of the same users as a simulation has them."""
    pairs = [(user, item) for user in users for item in HOUSEHOLD[user][0]]
    data = ff.Interactions.from_pairs(*map(list, zip(*pairs, strict=True))).with_items(np.arange(N_ITEMS))
    devices = Devices(
        data, terms.model, terms.sampler, terms.training, terms.open_log(MemoryStore()),
        seed=terms.seed, compute=Compute(workers=1),
    )  # fmt: skip
    devices.restore(0)
    return devices


def branched(devices: Devices, until: int) -> Devices:
    new = devices.branch(devices.log.branch(None, until, np.empty(0, np.uint64)), until, [])
    new.settle_private(until)
    return new


def logged(devices: Devices, user: UserId) -> dict[int, bytes]:
    """The entries of a user in memory."""
    key = np.array([user_key(user)], np.uint64)
    found = {round_: list(devices.log.store.read(round_, key)) for round_ in range(1, 9)}
    return {round_: bytes(bodies[0]) for round_, bodies in found.items() if bodies}


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


# Orders that are late, repeated or lost


def test_an_older_order_is_outdated_and_nothing_changes(host):
    trained(host, 2)
    before = on_disk(host)
    for ask in (
        lambda: host.train(order(1, 3, 2), sent(3), EPOCHS),
        lambda: host.train(order(1, 1, 0), sent(1), EPOCHS),
        lambda: host.replay(replayed(1, 3, 2), sent(3), PLAIN),
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


# Orders that ask for too much


@pytest.mark.parametrize("epochs", [EPOCHS + 1, 10**9, 0, -1])
def test_more_epochs_than_agreed_are_refused_and_nothing_is_logged(host, epochs):
    trained(host, 4)
    before = everything(host, but="order")
    answers = host.train(order(5, 5, 4), sent(5), epochs)
    assert answers.failures == dict.fromkeys(USERS, TOO_LONG)
    assert len(answers.updates) == 0
    assert everything(host, but="order") == before
    replay = host.replay(replayed(6, 3, 2), sent(3), replace(PLAIN, epochs=epochs))
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
    assert host.replay(replayed(6, 3, 2), other, PLAIN).failures == dict.fromkeys(USERS, OTHER_MODEL)
    with pytest.raises(RefusedError, match=OTHER_MODEL), host.looking(order(7, 5, 4), other):
        pytest.fail("a device looked at another model")


def test_a_recall_for_another_number_of_items_is_refused(host):
    trained(host, 4)
    assert host.recall(replayed(5, 3, 2), N_ITEMS + 1).failures == dict.fromkeys(USERS, OTHER_MODEL)


# Following the federation from trajectory to trajectory


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
        devices.train(round_, public_of(round_), list(USERS), EPOCHS)
    new = branched(devices, until)
    lineage: Lineage = (*ORIGIN, ("a", until))
    asked = order(5, until + 1, until, lineage=lineage, in_service="origin", served=4)
    mine = host.replay(asked, sent(9), Replay(epochs=2)) if until < 4 else host.train(asked, sent(9), EPOCHS)
    theirs = (
        new.replay(until + 1, public_of(9), list(USERS), Replay(epochs=2))
        if until < 4
        else new.train(until + 1, public_of(9), list(USERS), EPOCHS)
    )
    assert bits(mine) == bits(theirs)
    for user in USERS:
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_a_whole_replay_is_what_devices_in_memory_do(host):
    trained(host, 4)
    devices = in_memory(terms_of())
    for round_ in range(1, 5):
        devices.train(round_, public_of(round_), list(USERS), EPOCHS)
    new = branched(devices, 2)
    for round_, how in ((3, Replay(epochs=2)), (4, Replay(epochs=1, items="logged", parts="all"))):
        mine = host.replay(replayed(round_ + 2, round_, round_ - 1), sent(round_ * 10), how)
        assert bits(mine) == bits(new.replay(round_, public_of(round_ * 10), list(USERS), how))
    on = host.train(order(7, 5, 4, lineage=FORK), sent(5), EPOCHS)
    assert bits(on) == bits(new.train(5, public_of(5), list(USERS), EPOCHS))
    for user in USERS:
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_a_recall_is_what_devices_in_memory_do(host):
    trained(host, 4)
    devices = in_memory(terms_of())
    for round_ in range(1, 5):
        devices.train(round_, public_of(round_), list(USERS), EPOCHS)
    new = branched(devices, 2)
    assert bits(host.recall(replayed(5, 3, 2), N_ITEMS)) == bits(new.recall(3, list(USERS), N_ITEMS))
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
    assert bits(host.train(asked, sent(6), EPOCHS)) == bits(witness.train(asked, sent(6), EPOCHS))


def test_a_trajectory_that_was_given_up_is_dropped(host):
    trained(host, 4)
    before = everything(host, but="order")
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    look(host, order(6, 5, 4))
    assert {user: {**tables(host, user, but="order"), "meta": 0} for user in USERS} == {
        user: {**found, "meta": 0} for user, found in before.items()
    }
    assert trajectories(host, "ann") == {"origin"}


def test_a_trajectory_that_was_given_up_for_another_is_dropped(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    look(host, order(6, 2, 1, lineage=(*ORIGIN, ("b", 1)), in_service="origin", served=4))
    assert trajectories(host, "ann") == {"origin", "b"}


def test_a_trajectory_that_was_given_up_for_another_leaves_no_mark_on_it(host, tmp_path):
    trained(host, 4)
    spared = copied(host, tmp_path / "spared")
    host.replay(replayed(5, 3, 2), sent(30), PLAIN)
    asked = order(6, 2, 1, lineage=(*ORIGIN, ("b", 1)), in_service="origin", served=4)
    assert bits(host.replay(asked, sent(20), PLAIN)) == bits(spared.replay(asked, sent(20), PLAIN))
    assert entries(host, "ann", "b") == entries(spared, "ann", "b")


@pytest.mark.parametrize("lineage", [ORIGIN, (*ORIGIN, ("b", 1)), (("elsewhere", 0),)], ids=str)
def test_a_server_that_does_not_know_where_the_device_has_been_is_refused(host, lineage):
    trained(host, 2)
    look(host, order(5, 3, 2, lineage=FORK))
    before = everything(host, but="order")
    answers = host.train(order(6, 3, 1, lineage=lineage), sent(3), EPOCHS)
    assert answers.failures == dict.fromkeys(USERS, UNKNOWN_PAST)
    assert everything(host, but="order") == before


# Replays that wait for the server's factors


def factors_of(round_: int, model: Recommender) -> Factors:
    """A server that scaled each item and each other tensor by another factor."""
    n_tensors = len(model.dense_layout.shapes)
    return Factors(
        (0.5 + np.arange(N_ITEMS) / round_).astype(np.float32), (0.25 + np.arange(n_tensors)).astype(np.float32)
    )


@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.NCF(dim=4)], ids=["mf", "ncf"])
@pytest.mark.parametrize("log", [ff.Log("float32"), ff.Log("float16", "importance", 0.5)], ids=["whole", "half"])
def test_a_replay_waits_and_is_settled_as_devices_in_memory_log_it(tmp_path, model, log):
    terms = terms_of(model, log)
    host, devices = household(tmp_path, terms), in_memory(terms)
    for round_ in range(1, 5):
        host.train(order(round_, round_, round_ - 1), sent(round_, model), EPOCHS)
        devices.train(round_, public_of(round_, model), list(USERS), EPOCHS)
    new, known = branched(devices, 2), {}
    for round_ in (3, 4):
        asked = replayed(round_ + 2, round_, round_ - 1, factors=known)
        mine = host.replay(asked, sent(round_ * 10, model), WAITS)
        assert bits(mine) == bits(new.replay(round_, public_of(round_ * 10, model), list(USERS), WAITS))
        assert mine.stored is not None
        assert len(mine.stored) == 3
        new.settle(round_, factors_of(round_, model))
        known = {("a", round_): factors_of(round_, model)}
        for user in USERS:
            assert rows(host, user, "SELECT trajectory, round FROM pending") == [("a", round_)]
            assert entries(host, user, "a")[round_] == b""
            assert private(host, user, "a") == new.private(user).tobytes()
    on = host.train(order(7, 5, 4, lineage=FORK, factors=known), sent(5, model), EPOCHS)
    assert bits(on) == bits(new.train(5, public_of(5, model), list(USERS), EPOCHS))
    for user in USERS:
        assert rows(host, user, "SELECT * FROM pending") == []
        assert entries(host, user, "a") == logged(new, user)
        assert private(host, user, "a") == new.private(user).tobytes()


def test_what_waits_is_settled_once_and_the_same_by_a_repeated_order(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    asked = replayed(6, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))})
    first = bits(host.replay(asked, sent(40), WAITS))
    state = everything(host)
    assert bits(Host(host.folder).replay(asked, sent(40), WAITS)) == first
    assert everything(host) == state


def test_what_waits_on_the_trajectory_in_service_is_settled_before_a_new_one_begins(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    host.replay(replayed(6, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}), sent(40), WAITS)
    lineage: Lineage = (*FORK, ("b", 4))
    known = {("a", 4): factors_of(4, ff.MF(dim=4))}
    look(host, order(7, 5, 4, lineage=lineage, in_service="a", served=4, factors=known))
    for user in USERS:
        assert entries(host, user, "a")[4] != b""
        assert entries(host, user, "b") == entries(host, user, "a")
        assert rows(host, user, "SELECT * FROM pending") == []


def test_factors_of_another_round_or_trajectory_settle_nothing(host):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    known = {("origin", 3): factors_of(3, ff.MF(dim=4)), ("a", 2): factors_of(2, ff.MF(dim=4))}
    look(host, replayed(6, 4, 3, factors=known))
    assert entries(host, "ann", "a")[3] == b""
    look(host, replayed(7, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}))
    assert entries(host, "ann", "a")[3] != b""


@pytest.mark.parametrize("shape", [(N_ITEMS - 1, 0), (N_ITEMS, 1), (0, 0)])
def test_factors_of_another_shape_are_refused_and_the_replay_still_waits(host, shape):
    trained(host, 4)
    host.replay(replayed(5, 3, 2), sent(30), WAITS)
    wrong = Factors(np.ones(shape[0], np.float32), np.ones(shape[1], np.float32))
    answers = host.replay(replayed(6, 4, 3, factors={("a", 3): wrong}), sent(40), WAITS)
    assert answers.failures == dict.fromkeys(USERS, OTHER_MODEL)
    look(host, replayed(7, 4, 3, factors={("a", 3): factors_of(3, ff.MF(dim=4))}))
    assert entries(host, "ann", "a")[3] != b""


# Files that are damaged


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_another_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE notes (note)")


@pytest.mark.filterwarnings("ignore::fedforget.errors.RunWarning")
@pytest.mark.parametrize("damage", [garbage, half, of_another_program, lambda path: path.write_bytes(b"")])
def test_a_damaged_file_costs_only_its_user(host, tmp_path, damage):
    trained(host, 2)
    whole = copied(host, tmp_path / "whole")
    damage(path_of(host, "bob"))
    mine, other = (each.train(order(3, 3, 2), sent(3), EPOCHS) for each in (host, whole))
    assert mine.failures == {"bob": DAMAGED}
    assert mine.updates.users == ["ann", "cid"]
    for user in ("ann", "cid"):
        assert bits(mine, user) == bits(other, user)
        assert tables(host, user) == tables(whole, user)


@pytest.mark.filterwarnings("ignore::fedforget.errors.RunWarning")
def test_a_file_with_one_damaged_page_costs_only_its_user(host, tmp_path):
    trained(host, 2)
    size = int(rows(host, "bob", "PRAGMA page_size")[0][0])
    for page in range(path_of(host, "bob").stat().st_size // size):
        hurt = copied(host, tmp_path / f"page-{page}")
        data = bytearray(path_of(hurt, "bob").read_bytes())
        data[page * size : (page + 1) * size] = np.random.default_rng(page).bytes(size)
        path_of(hurt, "bob").write_bytes(data)
        answers = hurt.train(order(3, 3, 2), sent(3), EPOCHS)
        assert set(answers.updates.users) >= {"ann", "cid"}
        assert set(answers.failures) <= {"bob"}


# Users who leave


def wiped(host: Host, user: UserId) -> bool:
    return host.wipe(FEDERATION, SALT, pseudonym(user, SALT))


def files_of(host: Host, user: UserId) -> list[str]:
    return [name for name in on_disk(host) if f"{user_key(user):016x}" in name]


def test_who_leaves_is_removed_and_a_stranger_from_then_on(host, tmp_path):
    trained(host, 2)
    rest = {name: data for name, data in on_disk(host).items() if name != path_of(host, "bob").name}
    whole = copied(host, tmp_path / "whole")
    for _ in range(2):
        assert wiped(host, "bob")
        assert files_of(host, "bob") == []
        assert on_disk(host) == rest
    answers = host.train(order(3, 3, 2), sent(3), EPOCHS)
    assert answers.failures == {"bob": STRANGER}
    other = whole.train(order(3, 3, 2), sent(3), EPOCHS)
    assert bits(answers, "ann", "cid") == bits(other, "ann", "cid")


def test_what_was_on_the_disk_is_zeros_before_it_is_let_go(host, tmp_path):
    trained(host, 2)
    size = path_of(host, "bob").stat().st_size
    (tmp_path / "kept").hardlink_to(path_of(host, "bob"))
    wiped(host, "bob")
    assert (tmp_path / "kept").read_bytes() == bytes(size)


def test_the_files_beside_a_database_go_with_it(host):
    trained(host, 2)
    with closing(sqlite3.connect(path_of(host, "bob"))) as reader:
        reader.execute("SELECT * FROM meta").fetchall()
        assert len(files_of(host, "bob")) == 3
        assert wiped(host, "bob")
        assert files_of(host, "bob") == []


def test_a_name_that_nobody_here_has_is_confirmed_and_nobody_is_touched(host):
    before = on_disk(host)
    assert host.wipe(FEDERATION, SALT, pseudonym("eve", SALT))
    assert host.wipe(FEDERATION, SALT, pseudonym("bob", "11" * 16))
    assert on_disk(host) == before


def test_a_federation_that_was_never_here_is_confirmed_and_no_folder_made(tmp_path):
    assert Host(tmp_path / "device").wipe(FEDERATION, SALT, pseudonym("bob", SALT))
    assert list(tmp_path.iterdir()) == []


def test_the_same_user_in_another_federation_stays(host):
    other = "fedcba9876543210"
    host.enrol(terms_of(federation=other), "bob", [0, 1])
    wiped(host, "bob")
    assert (host.folder / other / path_of(host, "bob").name).exists()
    assert host.train(replace(order(1, 1, 0, users=["bob"]), federation=other), sent(1), EPOCHS).failures == {}


def test_a_user_can_be_removed_by_hand_under_the_id_as_it_is_written(host):
    host.enrol(terms_of(), 5, [0, 1])
    rest = {name: data for name, data in on_disk(host).items() if name not in files_of(host, 5)}
    assert not host.remove(FEDERATION, "eve")
    assert host.remove(FEDERATION, "5")
    assert not host.remove(FEDERATION, "5")
    assert on_disk(host) == rest


def test_who_left_may_join_again_as_someone_new(host, tmp_path):
    trained(host, 2)
    wiped(host, "bob")
    host.enrol(terms_of(), "bob", *HOUSEHOLD["bob"])
    fresh = household(tmp_path / "fresh", users=["bob"])
    asked = order(3, 3, 0, users=["bob"])
    assert bits(host.train(asked, sent(3), EPOCHS)) == bits(fresh.train(asked, sent(3), EPOCHS))


@pytest.mark.filterwarnings("ignore::fedforget.errors.RunWarning")
def test_a_file_that_cannot_be_read_is_not_confirmed_as_wiped(host):
    trained(host, 2)
    data = bytearray(path_of(host, "bob").read_bytes())
    data[:100] = bytes(100)
    path_of(host, "bob").write_bytes(data)
    assert not (wiped(host, "bob") and path_of(host, "bob").exists())


# Real kills


COUPLE = ("ann", "bob")


def train_late(host: Host) -> Answers:
    """A round after one that came too late."""
    return host.train(order(11, 4, 2, users=COUPLE), sent(4), EPOCHS)


def begin_again(host: Host) -> Answers:
    """The first round on a new trajectory, which waits for the server's factors."""
    return host.replay(replayed(11, 3, 2, users=COUPLE), sent(30), WAITS)


def go_on(host: Host) -> Answers:
    """The first round of training on a new trajectory, once the one before it is settled and the old one dropped."""
    known = {("a", 3): factors_of(3, ff.MF(dim=4))}
    return host.train(order(12, 4, 3, users=COUPLE, lineage=FORK, factors=known), sent(4), EPOCHS)


def wipe_bob(host: Host) -> Answers:
    """Nothing to answer, but a file to remove."""
    assert wiped(host, "bob")
    return Answers(Updates.none())


DEEDS = {deed.__name__: deed for deed in (train_late, begin_again, go_on, wipe_bob)}
CHANGE = ("fedforget.device.log.user_files", "UserFiles", "change")
SWEEP = ("fedforget.device.member", "", "sweep")
Kill = tuple[str, int]


def die_at_each(deed: str, spare: Path, place: tuple[str, str, str], kills: dict[Kill, Path], answer: Any) -> None:
    """For each kill, fork a process that does the deed in a folder and dies there; tell how each ended.

    The deed is done once before, elsewhere: compiled code is loaded then, and each fork has it at once.
    """
    DEEDS[deed](Host(spare))
    ends = {}
    for (when, n), folder in kills.items():
        child = os.fork()
        if child == 0:
            deadly_at(*place, when, n)
            DEEDS[deed](Host(folder))
            os._exit(0)
        ends[when, n] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answer.send(ends)


def killed(host: Host, folder: Path, deed: str, place: tuple[str, str, str], calls: Sequence[int]) -> list[Host]:
    """Devices that were killed during the same deed, before each of these calls of a function, or after the last."""
    kills = {("before", n): folder / f"before-{n}" for n in calls}
    kills["after", calls[-1]] = folder / "after"
    for target in (folder / "spare", *kills.values()):
        copied(host, target)
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=die_at_each, args=(deed, folder / "spare", place, kills, sender))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert receiver.recv() == dict.fromkeys(kills, -signal.SIGKILL)
    return [Host(target) for target in kills.values()]


def writes_of(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Answers]) -> tuple[list[str], Answers]:
    """Every change to a file that a deed makes, as the values of its last statement, and what comes of the deed."""
    writes, original = [], UserFiles.change

    def noted(self: UserFiles, key: int, statements: list[Any], scrubbed: bool = False) -> None:
        writes.append(str(statements[-1][1]))
        original(self, key, statements, scrubbed)

    with monkeypatch.context() as patch:
        patch.setattr(UserFiles, "change", noted)
        answers = ask()
    return writes, answers


@pytest.mark.parametrize("deed", ["train_late", "begin_again", "go_on"])
def test_killed_around_any_write_a_device_asked_again_answers_as_if_unbroken(host, tmp_path, monkeypatch, deed):
    trained(host, 3 if deed == "train_late" else 4)
    if deed == "go_on":
        begin_again(host)
    unbroken = copied(host, tmp_path / "unbroken")
    writes, answers = writes_of(monkeypatch, lambda: DEEDS[deed](unbroken))
    assert len(writes) >= 8
    for dead in killed(host, tmp_path, deed, CHANGE, range(1, len(writes) + 1)):
        assert bits(DEEDS[deed](dead)) == bits(answers)
        for user in COUPLE:
            assert trajectories(dead, user) == trajectories(unbroken, user)
            for trajectory in trajectories(dead, user):
                assert entries(dead, user, trajectory) == entries(unbroken, user, trajectory)
                assert private(dead, user, trajectory) == private(unbroken, user, trajectory)
            for table in ("meta", "pending"):
                assert tables(dead, user)[table] == tables(unbroken, user)[table]


def test_killed_while_it_begins_a_trajectory_a_device_still_settles_its_private_parameters(host, tmp_path, monkeypatch):
    trained(host, 4)
    unbroken = copied(host, tmp_path / "unbroken")
    writes, _ = writes_of(monkeypatch, lambda: begin_again(unbroken))
    begun = [n for n, values in enumerate(writes, start=1) if "trajectories" in values]
    assert len(begun) == 2
    for dead in killed(host, tmp_path, "begin_again", CHANGE, begun):
        begin_again(dead)
        assert everything(dead) == everything(unbroken)


def test_killed_around_a_wipe_the_file_goes_with_the_next_and_the_others_are_as_they_were(host, tmp_path):
    trained(host, 2)
    rest = everything(host, ["ann", "cid"])
    for dead in killed(host, tmp_path, "wipe_bob", SWEEP, [1]):
        assert wiped(dead, "bob")
        assert files_of(dead, "bob") == []
        assert not [name for name in on_disk(dead) if name.endswith(".gone")]
        assert everything(dead, ["ann", "cid"]) == rest
