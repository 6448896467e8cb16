"""The registry: one key speaks for a user, orders are numbered upwards, and who leaves is known by a hash alone."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import ConfigError, RunError
from fedforget.protocol.pseudonym import pseudonym
from fedforget.server.node_registry import NodeRegistry, WipeOrder, bare_key

PHONE = "ecdsa-sha2-nistp384 AAAAphone"
TABLET = "ecdsa-sha2-nistp384 AAAAtablet"
LAPTOP = "ssh-ed25519 AAAAlaptop"
#: Ids that cannot stand in a file by accident.
NAMES = [f"somebody-called-{number:04d}" for number in range(400)]


@pytest.fixture
def registry():
    with closing(NodeRegistry(None)) as registry:
        yield registry


def in_files(folder: Path, text: str) -> list[str]:
    """The names of the files with this text, among the database, its write-ahead log and whatever is beside them."""
    return [path.name for path in sorted(folder.iterdir()) if text.encode() in path.read_bytes()]


def meant(order: WipeOrder, users: list) -> list:
    """The users that a device with these recognises in an order."""
    return [user for user in users if pseudonym(user, order.salt) == order.pseudonym]


# Who speaks for whom


def test_a_new_registry_knows_nobody(registry):
    assert registry.users() == registry.wipe_orders() == []
    assert registry.by_node() == registry.nodes_of(["ann"]) == {}


def test_a_node_speaks_for_the_users_it_was_registered_with(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.register(TABLET, 102, ["cid"])
    assert sorted(registry.users()) == ["ann", "bob", "cid"]
    assert registry.by_node() == {101: ["ann", "bob"], 102: ["cid"]}


def test_nodes_are_named_for_those_asked_about_in_their_order_and_strangers_are_left_out(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.register(TABLET, 102, ["cid"])
    assert list(registry.nodes_of(["cid", "eve", "ann"]).items()) == [("cid", 102), ("ann", 101)]


def test_more_users_may_come_to_a_node_and_the_same_ones_again(registry):
    for users in (["ann"], ["ann", "bob"], []):
        registry.register(PHONE, 101, users)
    assert registry.by_node() == {101: ["ann", "bob"]}


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
        st.lists(st.text(st.characters(codec="utf-8")), unique=True),
    )
)
def test_every_id_comes_back_as_what_it_was(users):
    with closing(NodeRegistry(None)) as registry:
        registry.register(PHONE, 101, users)
        assert set(registry.users()) == set(users)
        assert registry.nodes_of(users) == dict.fromkeys(users, 101)


def test_a_federation_has_users_of_one_kind(registry):
    with pytest.raises(ConfigError, match="Ids of two types: 5, 'ann'"):
        registry.register(PHONE, 101, [5, "ann"])
    registry.register(PHONE, 101, [5])
    with pytest.raises(ConfigError, match="Ids of two types: '5'"):
        registry.register(TABLET, 102, ["5"])
    assert registry.nodes_of([5, "5"]) == {5: 101}


def test_a_user_with_another_key_is_refused_and_nothing_of_the_attempt_stays(registry):
    registry.register(PHONE, 101, ["ann"])
    with pytest.raises(ConfigError, match=r"User 'ann' is registered with another key(.|\n)*release the user first"):
        registry.register(TABLET, 102, ["bob", "ann"])
    assert registry.by_node() == {101: ["ann"]}
    assert registry.users() == ["ann"]


def test_a_released_user_may_come_back_with_another_key(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.release(["ann", "nobody"])
    assert registry.by_node() == {101: ["bob"]}
    registry.register(TABLET, 102, ["ann"])
    assert registry.by_node() == {101: ["bob"], 102: ["ann"]}
    assert registry.wipe_orders() == []


def test_the_comment_of_a_key_does_not_matter(registry):
    registry.register(f"{PHONE} ann@phone", 101, ["ann"])
    registry.register(f"  {PHONE}   another comment\n", 101, ["bob"])
    registry.register(PHONE, 101, ["ann"])
    assert registry.by_node() == {101: ["ann", "bob"]}
    assert bare_key(f"{LAPTOP} a b c") == LAPTOP


@pytest.mark.parametrize(
    "key", ["", "AAAAphone", "ecdsa-sha2-nistp384", "-----BEGIN PRIVATE KEY----- AAAA", "rsa AAAA"]
)
def test_what_is_not_a_public_key_is_refused_with_the_file_to_take(registry, key):
    with pytest.raises(ConfigError, match=r"is not a public key\.\n.*\.pub"):
        registry.register(key, 101, ["ann"])
    assert registry.users() == []


def test_a_long_key_is_shown_in_short(registry):
    with pytest.raises(ConfigError) as refused:
        registry.register("x" * 5000, 101, [])
    assert len(refused.value.problem) < 100


def test_a_node_that_gets_a_new_number_keeps_its_users_and_its_orders(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.remove_users(["bob"], "r")
    registry.register(PHONE, 207, [])
    assert registry.by_node() == {207: ["ann"]}
    assert [order.node for order in registry.wipe_orders()] == [207]


def test_a_number_that_went_to_another_key_no_longer_leads_to_the_first(registry):
    registry.register(PHONE, 101, ["ann"])
    registry.register(TABLET, 101, ["bob"])
    assert registry.by_node() == {101: ["bob"]}
    assert sorted(registry.users()) == ["ann", "bob"]


@pytest.mark.parametrize("node", [1, 2**63, 2**64 - 1])
def test_numbers_of_nodes_have_64_bits(registry, node):
    registry.register(PHONE, node, ["ann", "bob"])
    registry.remove_users(["bob"], "r")
    assert registry.by_node() == {node: ["ann"]}
    assert registry.nodes_of(["ann"]) == {"ann": node}
    assert [order.node for order in registry.wipe_orders()] == [node]
    registry.register(TABLET, node, [])
    assert registry.by_node() == {}


# Numbers of orders


def test_order_numbers_always_grow(registry):
    numbers = [registry.next_number() for _ in range(50)]
    assert numbers == sorted(set(numbers))


def test_order_numbers_grow_while_the_clock_stands_or_goes_back(registry, monkeypatch):
    numbers = []
    for now in (1000, 1000, 10, 0, 2000, 1999):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        numbers.append(registry.next_number())
    assert numbers == [1000, 1001, 1002, 1003, 2000, 2001]


def test_order_numbers_grow_after_reopening_under_a_clock_that_went_back(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1000)
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.next_number()
    monkeypatch.setattr(time, "time_ns", lambda: 7)
    with closing(NodeRegistry(tmp_path)) as registry:
        assert registry.next_number() == 1001


def test_order_numbers_grow_after_an_old_copy_was_put_back(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.next_number()
    copy = (tmp_path / "registry.sqlite").read_bytes()
    with closing(NodeRegistry(tmp_path)) as registry:
        last = max(registry.next_number() for _ in range(20))
    (tmp_path / "registry.sqlite").write_bytes(copy)
    with closing(NodeRegistry(tmp_path)) as registry:
        assert registry.next_number() > last


# Users who leave


def test_a_user_who_leaves_is_an_order_that_a_device_with_that_user_recognises(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.remove_users(["ann"], "request-1")
    (order,) = registry.wipe_orders()
    assert (order.node, order.request) == (101, "request-1")
    assert meant(order, ["bob", "ann", "eve"]) == ["ann"]
    assert registry.by_node() == {101: ["bob"]}


def test_every_order_has_a_salt_of_its_own(registry):
    registry.register(PHONE, 101, NAMES[:20])
    registry.remove_users(NAMES[:20], "r")
    orders = registry.wipe_orders()
    assert len({order.salt for order in orders}) == len({order.pseudonym for order in orders}) == 20
    assert sorted(user for order in orders for user in meant(order, NAMES)) == NAMES[:20]


@pytest.mark.parametrize("count", [1, 150, 399])
def test_no_file_holds_the_id_of_someone_who_left_while_it_is_open_or_after(tmp_path, count):
    forgotten, remaining = NAMES[:count], NAMES[count:]
    with closing(NodeRegistry(tmp_path)) as registry:
        for start in range(0, len(NAMES), 40):
            registry.register(f"{PHONE}{start}", start, NAMES[start : start + 40])
        assert in_files(tmp_path, forgotten[0])
        registry.remove_users(forgotten, "r")
        assert [user for user in forgotten if in_files(tmp_path, user)] == []
        assert set(registry.users()) == set(remaining)
    assert [user for user in forgotten if in_files(tmp_path, user)] == []
    assert all(in_files(tmp_path, user) for user in remaining)


def test_letting_go_twice_or_of_a_stranger_is_harmless(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.remove_users(["ann"], "first")
    once = registry.wipe_orders()
    registry.remove_users(["ann", "ann", "nobody"], "second")
    assert registry.wipe_orders() == once
    assert registry.users() == ["bob"]


def test_a_confirmed_order_is_gone_and_the_others_wait(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.register(TABLET, 102, ["cid"])
    registry.remove_users(["ann", "bob"], "r")
    anns, bobs = sorted(registry.wipe_orders(), key=lambda order: meant(order, ["ann", "bob"]))
    registry.confirm([anns])
    registry.confirm([anns])
    assert registry.wipe_orders() == [bobs]


def test_a_node_is_forgotten_with_its_last_order_if_it_has_no_users(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 101, ["ann"])
        registry.register(TABLET, 102, ["bob", "cid"])
        registry.remove_users(["ann", "bob"], "r")
        assert in_files(tmp_path, "AAAAphone")
        registry.confirm(registry.wipe_orders())
        assert registry.wipe_orders() == []
        assert registry.by_node() == {102: ["cid"]}
        assert in_files(tmp_path, "AAAAphone") == []
        assert in_files(tmp_path, "AAAAtablet")


def test_of_a_confirmed_order_only_the_number_of_its_request_stays(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 101, ["ann", "bob", "cid"])
        registry.remove_users(["ann", "bob"], "request-1")
        registry.remove_users(["cid"], "request-2")
        done = [order for order in registry.wipe_orders() if meant(order, ["ann"])]
        assert registry.wiped() == {"request-1": (0, 2, 0), "request-2": (0, 1, 0)}
        registry.confirm(done)
        registry.confirm(done)
        assert registry.wiped() == {"request-1": (1, 2, 0), "request-2": (0, 1, 0)}
        assert in_files(tmp_path, done[0].pseudonym) == in_files(tmp_path, done[0].salt) == []
        registry.confirm(registry.wipe_orders())
        assert registry.wiped() == {"request-1": (2, 2, 0), "request-2": (1, 1, 0)}
        assert in_files(tmp_path, "AAAAphone") == []


def test_every_device_that_held_a_user_is_told_to_wipe(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.release(["ann"])
    registry.register(TABLET, 102, ["ann"])
    registry.release(["bob"])
    registry.remove_users(["ann", "bob"], "r")
    assert sorted(order.node for order in registry.wipe_orders()) == [101, 101, 102]
    assert registry.wiped() == {"r": (0, 3, 0)}
    registry.confirm(registry.wipe_orders())
    assert registry.by_node() == {}


def test_orders_to_lost_devices_can_be_given_up(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 101, ["ann"])
        registry.remove_users(["ann"], "r")
        (order,) = registry.wipe_orders()
        assert registry.give_up("other") == 0
        assert registry.give_up("r") == 1
        assert registry.wipe_orders() == []
        assert registry.wiped() == {"r": (0, 1, 1)}
        assert registry.leaving(["ann"]) == []
        assert in_files(tmp_path, order.salt) == []


def test_a_user_may_join_anew_only_once_its_device_has_wiped_what_it_had(registry):
    registry.register(PHONE, 101, ["ann", "bob"])
    registry.remove_users(["ann"], "r")
    assert registry.leaving(["bob", "ann", "eve"]) == ["ann"]
    for key in (PHONE, TABLET):
        with pytest.raises(ConfigError, match=r"User 'ann' was forgotten(.|\n)*before the user joins again"):
            registry.register(key, 102, ["cid", "ann"])
    assert registry.by_node() == {101: ["bob"]}
    registry.confirm(registry.wipe_orders())
    assert registry.leaving(["ann"]) == []
    registry.register(TABLET, 102, ["ann"])
    assert registry.by_node() == {101: ["bob"], 102: ["ann"]}


def test_a_node_with_an_order_that_waits_is_not_forgotten(registry):
    registry.register(PHONE, 101, ["ann"])
    registry.remove_users(["ann"], "r")
    registry.confirm([])
    assert [order.node for order in registry.wipe_orders()] == [101]


def test_all_of_it_survives_reopening(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 101, ["ann", "bob"])
        registry.register(TABLET, 102, ["7", "8"])
        registry.remove_users(["bob", "8"], "r")
        before = registry.by_node(), sorted(registry.wipe_orders(), key=str), registry.next_number()
    with closing(NodeRegistry(tmp_path)) as registry:
        assert (registry.by_node(), sorted(registry.wipe_orders(), key=str)) == before[:2]
        assert registry.by_node() == {101: ["ann"], 102: ["7"]}
        assert registry.next_number() > before[2]
        with pytest.raises(ConfigError, match="another key"):
            registry.register(LAPTOP, 103, ["ann"])


# Damage


def test_a_changed_table_is_named(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 7, ["ada", "bob"])
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as db, db:
        db.execute("UPDATE user SET user = 'eve' WHERE user = 'bob'")
    with pytest.raises(RunError, match=r"registry\.sqlite is damaged: its table 'user'"):
        NodeRegistry(tmp_path)


def test_a_registry_of_an_earlier_version_is_opened_and_sealed_when_it_changes(tmp_path):
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 7, ["ada"])
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as db, db:
        db.execute("DROP TABLE table_seal")
    with closing(NodeRegistry(tmp_path)) as registry:
        registry.register(PHONE, 7, ["bob"])
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as db, db:
        db.execute("DELETE FROM user WHERE user = 'ada'")
    with pytest.raises(RunError, match=r"registry\.sqlite is damaged"):
        NodeRegistry(tmp_path)


@pytest.mark.parametrize("content", [None, b""])
def test_a_registry_that_is_gone_after_training_is_missed(tmp_path, content):
    (tmp_path / "trajectory-1" / "snapshots").mkdir(parents=True)
    (tmp_path / "trajectory-1" / "snapshots" / "000000.safetensors").touch()
    if content is not None:
        (tmp_path / "registry.sqlite").write_bytes(content)
    with pytest.raises(RunError, match=r"registry\.sqlite is (missing|empty)"):
        NodeRegistry(tmp_path)
