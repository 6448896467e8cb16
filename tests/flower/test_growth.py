"""New users and items, and requests of devices to forget items: on a network as in the simulation."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.device.device import Device, ForgottenItems
from fedforget.device.host import Host
from fedforget.device.member import TRAIN as TRAIN_PART
from fedforget.device.model_file import ModelFile
from fedforget.protocol import reasons
from fedforget.protocol.invitation import NAME, Invitation
from fedforget.protocol.notice import ItemsRequest, Notice
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Train
from fedforget.runtime.randomness import ItemId, UserId, user_key
from fedforget.server.erasure import Erasure
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest
from tests.deadly import deadly_at
from tests.flower.worlds import DATA, TEST, TRAIN, USERS, OnFlower, Simulated, key_of, node_of
from tests.forks import processes

ITEMS: list[ItemId] = TRAIN.item_ids.tolist()
MODELS = {"mf": ff.MF(dim=8), "lightgcn": ff.LightGCN(dim=8), "ials": ff.IALS(dim=8)}
EVERYBODY = {"server": ff.ServerConfig(fraction=1.0)}


class Pair:
    """The same federation on both engines, and what happens to it on both."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.simulated = Simulated(folder / "simulated", **{**EVERYBODY, **changes})
        self.simulated.fed.test = TEST
        self.network = OnFlower(folder / "network", **{**EVERYBODY, **changes})
        self.rounds = 0

    def close(self) -> None:
        self.simulated.close()
        self.network.close()

    def train(self, more: int = 1) -> None:
        self.rounds += more
        for world in (self.simulated, self.network):
            world.train(self.rounds)

    def device(self, user: UserId) -> Device:
        return Device(self.network.states[node_of(user)], self.network.service.config.id)

    def add(self, user: UserId, items: Sequence[ItemId]) -> None:
        assert self.device(user).add(user, items) == len(items)
        added = self.simulated.fed.add(ff.Interactions.from_pairs([user] * len(items), list(items)))
        assert added.interactions == len(items)

    def add_items(self, user: UserId, items: Sequence[ItemId]) -> None:
        """New items, the first interactions with which are a user's."""
        assert self.network.service.add_items(items) == list(items)
        self.device(user).set_catalogue(self.invitation())
        self.add(user, items)

    def invitation(self) -> Invitation:
        return Invitation.load(self.network.run / NAME)

    def join(self, user: UserId, items: Sequence[ItemId], *, readmit: bool = False) -> None:
        node = node_of(user)
        Device(self.network.states[node]).join(self.invitation(), user, items, secret="")
        self.network.service.register(key_of(node), node, [user], readmit=readmit)
        self.simulated.fed.add(ff.Interactions.from_pairs([user] * len(items), list(items)), readmit=readmit)

    def forget(self, users: Sequence[UserId], method: ff.Method | None = None) -> None:
        method = method or (ff.Retrain() if self.simulated.fed.model.closed_form else ff.FRU())
        for world in (self.simulated, self.network):
            world.forget(users, method)

    def forget_items(self, user: UserId, items: Sequence[ItemId]) -> ForgottenItems:
        """The device asks in the next round, which the user misses, and the server replays after it."""
        asked = self.device(user).forget(user, items)
        if asked.requested:
            self.round_without(user)
        self.simulated.fed.forget(user=user, items=items)
        self.network.train(self.rounds)
        return asked

    def round_without(self, *users: UserId) -> None:
        """A round in which the devices of these users ask to forget items; the server has not acted on it yet."""
        self.rounds += 1
        self.simulated.away = set(users)
        self.simulated.train(self.rounds)
        self.simulated.away = set()
        self.network.service._train(None, 1, lambda record: None)
        assert self.network.history.record(self.rounds).failures == dict.fromkeys(users, reasons.WAITS)

    def assert_equal(self) -> None:
        here, there = self.simulated.public, self.network.public
        np.testing.assert_allclose(here.items, there.items, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(here.dense, there.dense, rtol=1e-4, atol=1e-5)
        assert sorted(self.simulated.fed.members, key=str) == sorted(self.network.service.members, key=str)
        for user in self.simulated.fed.members:
            member = self.network.member(user)
            own = [self.network.service.catalogue()[place] for place in member.items(TRAIN_PART)[0]]
            assert sorted(own) == sorted(self.simulated.fed.train.item_ids_of(user))


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, model=MODELS[request.param])
    yield made
    made.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def own(user: UserId, count: int) -> list[ItemId]:
    return TRAIN.item_ids_of(user)[:count]


def unseen(user: UserId, count: int) -> list[ItemId]:
    return [item for item in ITEMS if item not in DATA.item_ids_of(user)][:count]


def file_of(pair: Pair, user: UserId) -> Path:
    folder = pair.network.states[node_of(user)] / pair.network.service.config.id
    return folder / f"{user_key(user):016x}.sqlite"


def test_new_items_count_from_the_next_round_on(pair):
    pair.train(3)
    pair.add_items(USERS[0], [1001, 1002])
    pair.train()
    assert pair.network.public.items.shape[0] == len(ITEMS) + 2
    pair.assert_equal()
    pair.add_items(USERS[4], [1003])
    pair.add(USERS[5], [1001])
    pair.train(2)
    pair.assert_equal()
    pair.forget([USERS[5]])  # replays rounds with three sizes of the catalogue
    pair.train()
    pair.assert_equal()


def test_new_items_are_in_a_replay_of_steps(pair):
    pair.train(3)
    pair.add_items(USERS[0], [1001, 1002])
    pair.train(3)
    method = ff.Retrain(steps=2) if pair.simulated.fed.model.closed_form else ff.FRU(replay="logged", stride=3)
    pair.forget([USERS[5]], method)
    pair.train()
    pair.assert_equal()


def test_items_that_were_added_and_not_trained_yet_are_in_no_replay(pair):
    pair.train(3)
    pair.add_items(USERS[0], [1001, 1002])
    method = ff.Retrain(steps=2) if pair.simulated.fed.model.closed_form else ff.FRU()
    pair.forget([USERS[5]], method)
    pair.train()
    pair.assert_equal()


def test_devices_get_the_ids_of_new_items_once(small):
    small.train(2)
    small.network.service.add_items([1001, 1002])
    sent = []
    orders = small.network.service.fleet.orders

    def listen(*args: Any) -> dict[int, Any]:
        made = orders(*args)
        sent.extend(order.new_items for order in made.values())
        return made

    small.network.service.fleet.orders = listen  # type: ignore[method-assign]
    small.network.train(4)
    assert sent == [(1001, 1002)] * 3 + [()] * 3
    for user in USERS:
        assert small.device(user).catalogue() == [*ITEMS, 1001, 1002]


def test_a_catalogue_that_contradicts_the_devices_is_refused(small):
    small.train(1)
    device = small.device(USERS[0])
    invitation = small.invitation()
    device.set_catalogue(Invitation(invitation.terms, [*invitation.items, 9001]))
    small.network.service.add_items([9002])
    small.network.train(2)
    record = small.network.history.record(2)
    hosted = {user for user in USERS if node_of(user) == node_of(USERS[0])}
    assert {user for user, reason in record.failures.items() if reason == reasons.OTHER_ITEMS} == hosted
    assert device.catalogue()[-1] == 9001
    with pytest.raises(ff.ConfigError, match="other items than the catalogue on this device"):
        device.set_catalogue(small.invitation())


def test_what_cannot_be_added_to_a_catalogue_is_named(small):
    service = small.network.service
    with pytest.raises(ff.ConfigError, match="no items to add"):
        service.add_items([])
    with pytest.raises(ff.ConfigError, match=r"Item id .7. is of another type"):
        service.add_items(["7"])
    assert service.add_items([77, 77, ITEMS[0]]) == [77]
    assert service.add_items([77]) == []
    assert service.catalogue() == [*ITEMS, 77]


def test_an_invitation_without_known_items_stops_the_server(small):
    small.train(1)
    small.network.service.add_items([77])
    small.network.train(2)
    invitation = small.invitation()
    Invitation(invitation.terms, invitation.items[:-1]).save(small.network.run / NAME)
    with pytest.raises(ff.RunError, match="does not list the items of this federation"):
        small.network.train(3)


def test_users_join_later_as_in_the_simulation(pair):
    pair.train(2)
    pair.forget([USERS[3]])
    with pytest.raises(ff.ConfigError, match="were forgotten before"):
        pair.network.service.register(key_of(node_of(USERS[3])), node_of(USERS[3]), [USERS[3]])
    assert USERS[3] not in pair.network.service.members
    pair.train(1)
    pair.join(USERS[3], unseen(USERS[3], 4), readmit=True)
    pair.train(2)
    assert USERS[3] in pair.network.history.record(pair.rounds).participants
    pair.assert_equal()
    pair.forget([USERS[3]])
    pair.train(1)
    pair.assert_equal()


def test_a_registry_from_a_backup_brings_nobody_back(small):
    small.train(2)
    backup = (small.network.run / "registry.sqlite").read_bytes()
    small.forget([USERS[3]])
    small.network.service.close()
    for name in ("registry.sqlite-wal", "registry.sqlite-shm"):
        (small.network.run / name).unlink(missing_ok=True)
    (small.network.run / "registry.sqlite").write_bytes(backup)
    small.network.service = small.network._open()
    small.train(1)
    assert USERS[3] not in small.network.service.members
    small.assert_equal()


def test_a_device_asks_to_forget_items_without_naming_them(pair):
    pair.train(4)
    user, items = USERS[2], own(USERS[2], 2)
    place = [ITEMS.index(item) for item in items]
    assert pair.forget_items(user, items) == ForgottenItems(removed=0, requested=2)
    (receipt,) = pair.network.service.receipts()
    assert receipt.users == []
    assert list(receipt.partial.values()) == [2]
    assert receipt.first_round == 1
    pair.assert_equal()
    pair.train()
    pair.assert_equal()
    (receipt,) = pair.network.service.receipts()
    assert receipt.wiped == receipt.devices == 1
    with closing(sqlite3.connect(file_of(pair, user))) as db:
        assert not db.execute("SELECT 1 FROM interaction WHERE item IN (?, ?)", place).fetchall()
        assert not db.execute("SELECT 1 FROM unwanted").fetchall()
        assert db.execute("SELECT DISTINCT trajectory FROM entry").fetchall() == [(receipt.request,)]
    pair.forget([USERS[0]])  # decodes the log of the replayed rounds
    pair.assert_equal()


def test_whole_users_and_items_of_others_are_forgotten_in_one_replay(small):
    small.train(3)
    wanted = {USERS[2]: own(USERS[2], 1), USERS[6]: own(USERS[6], 2)}
    for user, items in wanted.items():
        small.device(user).forget(user, items)
    small.round_without(*wanted)
    method = ff.FRU()
    ErasureQueue(small.network.run).add(ErasureRequest.new([USERS[9]], method.settings()))
    small.simulated.fed.forget([USERS[9]], method, items=wanted)
    small.network.train(small.rounds)
    (receipt,) = small.network.service.receipts()
    assert len(receipt.users) == 1
    assert sorted(receipt.partial.values()) == [1, 2]
    assert receipt.wiped == 3
    small.assert_equal()


def test_items_that_no_model_was_trained_on_are_removed_at_once(small):
    small.train(2)
    user = USERS[1]
    new, held_out = unseen(user, 2), TEST.item_ids_of(user)
    small.add(user, new)
    asked = small.device(user).forget(user, [*new, *held_out])
    assert asked == ForgottenItems(removed=len(new) + len(held_out), requested=0)
    small.network.train(3)
    assert user in small.network.history.record(3).participants
    assert small.network.service.receipts() == []


def test_what_cannot_be_forgotten_on_a_device_is_named(small):
    small.train(1)
    device, user = small.device(USERS[0]), USERS[0]
    with pytest.raises(ff.DataError, match="no items to forget"):
        device.forget(user, [])
    with pytest.raises(ff.DataError, match="does not have item"):
        device.forget(user, unseen(user, 1))
    with pytest.raises(ff.ConfigError, match="would have no interactions left"):
        device.forget(user, TRAIN.item_ids_of(user))
    device.forget(user, own(user, 1))
    with pytest.raises(ff.ConfigError, match="about to be forgotten"):
        device.add(user, own(user, 1))
    with pytest.raises(ff.ConfigError, match="On the user's device"):
        small.network.service.estimate([], None, {user: own(user, 1)})


def test_a_second_request_during_the_first_is_carried_out_after_it(small):
    small.train(3)
    user, (first, second) = USERS[2], own(USERS[2], 2)
    small.device(user).forget(user, [first])
    small.round_without(user)
    (asked,) = small.network.service.registry.items_requests()
    small.device(user).forget(user, [second])
    assert asked.count == 1
    small.network.train(7)  # the first request, a round without the user, the second request, a round with the user
    assert [list(receipt.partial.values()) for receipt in small.network.service.receipts()] == [[1], [1]]
    assert {first, second}.isdisjoint(
        small.network.service.catalogue()[place] for place in small.network.member(user).items(TRAIN_PART)[0]
    )
    assert user in small.network.history.record(7).participants


def test_a_device_that_was_away_during_the_replay_removes_the_items_later(small):
    small.train(3)
    user = USERS[2]
    small.device(user).forget(user, own(user, 1))
    small.round_without(user)
    small.network.disconnect(node_of(user))
    small.network.train(5)
    (receipt,) = small.network.service.receipts()
    assert (receipt.wiped, receipt.devices) == (0, 1)
    small.network.disconnect()
    small.network.service._wipe_backoff._next_attempt = 0.0
    small.network.train(6)
    (receipt,) = small.network.service.receipts()
    assert receipt.wiped == 1
    assert user in small.network.history.record(6).participants


# What a review found


class Stopped(BaseException):
    """An interruption."""


def test_what_arrives_during_an_interrupted_erasure_counts_after_it(small):
    small.train(3)
    small.forget([USERS[3]])
    network = small.network
    ErasureQueue(network.run).add(ErasureRequest.new([USERS[5]], ff.FRU().settings()))

    def stop(*_: Any) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Erasure, "carry_out", stop)
        with pytest.raises(Stopped):
            network.train(3)
    network.restart()
    network.service.add_items([1001, 1002])
    node = node_of(USERS[3])
    Device(network.states[node]).join(small.invitation(), USERS[3], unseen(USERS[3], 3), secret="")
    network.service.register(key_of(node), node, [USERS[3]], readmit=True)
    network.train(5)
    assert network.public.items.shape[0] == len(ITEMS) + 2
    assert USERS[3] in network.history.record(5).participants
    assert USERS[5] not in network.service.members


def test_requests_are_numbered_and_a_new_device_goes_on_counting(small):
    small.train(2)
    user, items = USERS[2], own(USERS[2], 4)
    device = small.device(user)
    for item in items[:2]:
        small.forget_items(user, [item])
    assert small.network.history.membership.erased([user]) == [2]
    device.host.remove(small.network.service.config.id, str(user))
    device.join(small.invitation(), user, items[2:] + unseen(user, 2), secret="")
    device.forget(user, [items[2]])  # before it knows that there were two requests
    small.network.train(small.rounds + 2)
    assert small.network.history.membership.erased([user]) == [3]
    assert len(small.network.service.receipts()) == 3
    assert items[2] not in [
        small.network.service.catalogue()[place] for place in small.network.member(user).items(TRAIN_PART)[0]
    ]


def test_interactions_that_do_not_count_yet_are_in_no_replay(tmp_path):
    pair = Pair(tmp_path, model=ff.IALS(dim=8))
    pair.train(4)
    user, new = USERS[2], unseen(USERS[2], 1)
    plain = Pair(tmp_path / "plain", model=ff.IALS(dim=8))
    plain.train(4)
    pair.add(user, new)
    for each in (pair, plain):
        each.forget([USERS[9]], ff.Retrain(steps=2))
    np.testing.assert_array_equal(pair.network.public.items, plain.network.public.items)
    np.testing.assert_array_equal(pair.simulated.public.items, plain.simulated.public.items)
    assert pair.device(user).forget(user, new) == ForgottenItems(removed=1, requested=0)
    pair.close()
    plain.close()


def test_a_device_that_always_asks_does_not_stop_the_training(small, monkeypatch):
    small.train(2)
    notice, numbers = Host.notice, iter(range(1, 1000))

    def always(self: Host, order: Order) -> Notice:
        told = notice(self, order)
        if USERS[0] not in order.users:
            return told
        return replace(told, requests=(ItemsRequest(USERS[0], next(numbers), 1, 1),))

    monkeypatch.setattr(Host, "notice", always)
    small.network.train(5)
    assert small.network.service.rounds == 5
    assert len(small.network.service.receipts()) <= 4


def test_a_request_of_a_device_is_not_carried_out_by_a_method_that_does_not_replay(small):
    small.train(3)
    small.device(USERS[2]).forget(USERS[2], own(USERS[2], 1))
    small.round_without(USERS[2])
    for users, method in (([USERS[9]], ff.Continue()), (["nobody"], ff.FRU())):
        ErasureQueue(small.network.run).add(ErasureRequest.new(users, method.settings()))
    small.network.train(small.rounds)
    by_method = {receipt.method["name"]: receipt for receipt in small.network.service.receipts()}
    assert not by_method["continue"].partial
    assert by_method["fru"].partial
    assert by_method["fru"].rounds_replayed >= 3
    assert list(small.network.service.queue.refused().values()) == ["None of its users is a member."]


def test_a_device_recommends_before_the_round_that_brings_a_new_item(small):
    small.train(1)
    small.network.service.evaluate()
    small.add_items(USERS[0], [1001])
    assert 1001 not in [item for item, _ in small.device(USERS[0]).recommend(USERS[0], 100)]


def test_a_device_that_is_set_up_again_gets_the_new_ids_again(small):
    small.train(1)
    first = small.invitation()
    small.network.service.add_items([1001])
    small.network.train(2)
    node = node_of(USERS[0])
    hosted = [user for user in USERS if node_of(user) == node]
    for user in hosted:
        small.device(user).host.remove(small.network.service.config.id, str(user))
        Device(small.network.states[node]).join(first, user, own(user, 3), secret="")
    small.network.train(5)
    assert small.device(USERS[0]).catalogue() == [*ITEMS, 1001]
    small.network.forget(hosted, ff.FRU())
    with closing(sqlite3.connect(small.network.run / "registry.sqlite")) as db:
        assert len(db.execute("SELECT * FROM known_items").fetchall()) == 2


@pytest.mark.parametrize(
    ("sizes", "new_items"),
    [
        (((0, len(ITEMS)), (1, 10**13)), ()),
        (((0, 0), (1, len(ITEMS) + 1)), (666,)),
        (((0, len(ITEMS)), (1, len(ITEMS) + 1)), (ITEMS[3],)),
        (((0, len(ITEMS)), (1, len(ITEMS) + 2)), (666, 666)),
        (((0, len(ITEMS)), (1, len(ITEMS) + 1)), ("text",)),
    ],
)
def test_a_wrong_order_about_the_catalogue_leaves_nothing_behind(small, sizes, new_items):
    small.train(1)
    user, network = USERS[0], small.network
    (order,) = network.service.fleet.orders(network.history, network.history, {2: [user]}).values()
    rows = np.zeros((min(sizes[-1][1], 100), 8), np.float32)
    host = Host(network.states[node_of(user)])
    result = host.run(Train(1), replace(order, sizes=sizes, new_items=new_items), (rows, np.empty(0, np.float32)))
    assert set(result[2].failures.values()) <= {reasons.OTHER_MODEL, reasons.OTHER_ITEMS}
    assert user in result[2].failures
    network.service.add_items([1001])
    network.train(2)
    assert user in network.history.record(2).participants
    assert small.device(user).catalogue() == [*ITEMS, 1001]


def test_a_damaged_catalogue_stops_no_training(small):
    small.train(1)
    folder = small.network.states[node_of(USERS[0])] / small.network.service.config.id
    (folder / "catalogue.json").write_text("[1,2")
    small.network.service.add_items([1001])
    small.network.train(2)
    assert not small.network.history.record(2).failures


def test_a_dropped_request_of_a_device_is_asked_again(small):
    small.train(1)
    small.device(USERS[2]).forget(USERS[2], own(USERS[2], 1))
    small.round_without(USERS[2])
    small.network.service.abandon_forgetting()
    assert small.network.service.registry.items_requests() == []
    small.network.train(small.rounds + 1)
    assert len(small.network.service.receipts()) == 1


def test_the_device_of_forgotten_items_gets_the_new_model(small):
    small.train(3)
    user = USERS[2]
    small.forget_items(user, own(user, 1))
    folder = small.network.states[node_of(user)] / small.network.service.config.id
    received = ModelFile(folder).load(small.network.service.model.dense_layout)
    np.testing.assert_array_equal(received.public.items, small.network.public.items)


def test_a_user_who_is_forgotten_before_its_items_are_removed(small):
    small.train(3)
    user = USERS[2]
    small.device(user).forget(user, own(user, 1))
    small.round_without(user)
    small.network.disconnect(node_of(user))
    small.network.train(small.rounds)
    small.network.disconnect()
    small.network.forget([user], ff.FRU())
    assert [receipt.wiped for receipt in small.network.service.receipts()] == [1, 1]


KILLS = [
    ("fedforget.server.node_registry", "NodeRegistry", "ask", "after"),
    ("fedforget.server.run", "Run", "begin_erasure", "after"),
    ("fedforget.server.run_config", "RunConfig", "save", "after"),
    ("fedforget.server.node_registry", "NodeRegistry", "add_removals", "before"),
    ("fedforget.server.node_registry", "NodeRegistry", "add_removals", "after"),
    ("fedforget.flower.fleet", "FlowerFleet", "remove_items", "before"),
    ("fedforget.server.node_registry", "NodeRegistry", "confirm_removals", "before"),
]


def ask_and_die(folder: Path, user: UserId, items: list[ItemId], kill: tuple[str, str, str, str]) -> None:
    network = OnFlower(folder / "network", **EVERYBODY)
    network.train(3)
    Device(network.states[node_of(user)]).forget(user, items)
    deadly_at(*kill, 1)
    network.train(4)
    raise AssertionError(f"survived {kill}")


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS, ids=[f"{when} {owner}.{name}" for _, owner, name, when in KILLS])
def test_a_server_that_is_killed_while_items_are_forgotten_goes_on(kill, tmp_path):
    user, items = USERS[2], own(USERS[2], 2)
    process = processes.Process(target=ask_and_die, args=(tmp_path, user, items, kill))
    process.start()
    process.join(300)
    assert process.exitcode == -9
    pair = Pair(tmp_path)
    pair.simulated.train(3)
    if kill[2] != "ask":  # killed in round 4, the server knows the request when it begins the round again
        pair.simulated.away = {user}
        pair.simulated.train(4)
        pair.simulated.away = set()
    pair.simulated.fed.forget(user=user, items=items)
    pair.rounds = 4
    pair.train(1)
    pair.assert_equal()
    (receipt,) = pair.network.service.receipts()
    assert receipt.wiped == 1
    pair.close()


class Life(stateful.RuleBasedStateMachine):
    """Anything that can happen to a federation, on both engines."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(Path(mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)))
        self.pair.train()
        self.gone: set[UserId] = set()
        self.named = 0

    def teardown(self) -> None:
        self.pair.close()

    def members(self) -> list[UserId]:
        return self.pair.simulated.fed.members

    @stateful.rule()
    def train(self) -> None:
        self.pair.train()

    @stateful.rule(place=st.integers(0, 20))
    def add_interactions(self, place: int) -> None:
        user = self.members()[place % len(self.members())]
        fed = self.pair.simulated.fed
        have = {*fed.train.item_ids_of(user), *(fed.test.item_ids_of(user) if fed.test else ())}
        if new := [item for item in self.pair.device(user).catalogue() if item not in have][:2]:
            self.pair.add(user, new)

    @stateful.rule(place=st.integers(0, 20))
    def add_items(self, place: int) -> None:
        self.named += 1
        self.pair.add_items(self.members()[place % len(self.members())], [2000 + self.named])

    @stateful.precondition(lambda self: len(self.members()) > 6)
    @stateful.rule(place=st.integers(0, 20))
    def forget_user(self, place: int) -> None:
        user = self.members()[place % len(self.members())]
        self.pair.forget([user], ff.FRU())
        self.gone.add(user)

    @stateful.rule(place=st.integers(0, 20))
    def forget_items(self, place: int) -> None:
        user = self.members()[place % len(self.members())]
        items = self.pair.simulated.fed.train.item_ids_of(user)
        if len(items) > 4:
            self.pair.forget_items(user, items[1:3])

    @stateful.precondition(lambda self: self.gone)
    @stateful.rule()
    def readmit(self) -> None:
        user = sorted(self.gone, key=str)[0]
        self.gone.remove(user)
        self.pair.join(user, ITEMS[3:8], readmit=True)

    @stateful.rule()
    def restart(self) -> None:
        self.pair.network.restart()

    @stateful.invariant()
    def equal(self) -> None:
        self.pair.assert_equal()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=5, stateful_step_count=8, deadline=None)
