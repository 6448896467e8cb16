"""Hosts: files that are damaged, and users who leave."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedforget.device.host import Host
from fedforget.protocol import reasons
from fedforget.protocol.pseudonym import pseudonym
from tests.device.made_hosts import (
    FEDERATION,
    HOUSEHOLD,
    SALT,
    bits,
    copied,
    files_of,
    household,
    on_disk,
    order,
    path_of,
    rows,
    sent,
    tables,
    terms_of,
    train,
    trained,
    wiped,
)

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
    mine, other = (train(each, order(3, 3, 2), sent(3)) for each in (host, whole))
    assert mine.failures == {"bob": reasons.FILE_DAMAGED}
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
        answers = train(hurt, order(3, 3, 2), sent(3))
        assert set(answers.updates.users) >= {"ann", "cid"}
        assert set(answers.failures) <= {"bob"}


# Users who leave


def test_who_leaves_is_removed_and_a_stranger_from_then_on(host, tmp_path):
    trained(host, 2)
    rest = {name: data for name, data in on_disk(host).items() if name != path_of(host, "bob").name}
    whole = copied(host, tmp_path / "whole")
    for _ in range(2):
        assert wiped(host, "bob")
        assert files_of(host, "bob") == []
        assert on_disk(host) == rest
    answers = train(host, order(3, 3, 2), sent(3))
    assert answers.failures == {"bob": reasons.NOT_ENROLLED}
    other = train(whole, order(3, 3, 2), sent(3))
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
    assert train(host, replace(order(1, 1, 0, users=["bob"]), federation=other), sent(1)).failures == {}


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
    host.enrol(terms_of(), "bob", *HOUSEHOLD["bob"], secret="")
    fresh = household(tmp_path / "fresh", users=["bob"])
    asked = order(3, 3, 0, users=["bob"])
    assert bits(train(host, asked, sent(3))) == bits(train(fresh, asked, sent(3)))


@pytest.mark.filterwarnings("ignore::fedforget.errors.RunWarning")
def test_a_file_that_cannot_be_read_is_not_confirmed_as_wiped(host):
    trained(host, 2)
    data = bytearray(path_of(host, "bob").read_bytes())
    data[:100] = bytes(100)
    path_of(host, "bob").write_bytes(data)
    assert not (wiped(host, "bob") and path_of(host, "bob").exists())


def test_an_order_to_wipe_that_is_repeated_after_a_new_enrolment_does_nothing(host):
    trained(host, 2)
    order = [(pseudonym("bob", SALT), SALT)]
    assert host.wipe_all(FEDERATION, 7, order) == [order[0][0]]
    host.enrol(terms_of(), "bob", *HOUSEHOLD["bob"])
    for number in (7, 6):
        assert host.wipe_all(FEDERATION, number, order) == []
    assert files_of(host, "bob")
    assert host.wipe_all(FEDERATION, 8, order) == [order[0][0]]
    assert not files_of(host, "bob")
