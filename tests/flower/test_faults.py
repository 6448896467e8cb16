"""What can go wrong between server and devices, each injected: the federation goes on, and says what happened.

Wherever an answer does not count, what comes out is what the simulation gives when that device was out of reach.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from tests.small_federations import cells

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from flwr.app import Array, ConfigRecord, Error, Message, RecordDict

from fedforget.errors import ConfigError, NoAnswerError, QuorumError
from fedforget.flower import messages
from fedforget.flower.fleet import FlowerFleet
from fedforget.flower.transport import SEAL, sealed_reply
from fedforget.protocol import reasons
from fedforget.protocol.tasks import Recall
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest
from fedforget.server.run_config import RunConfig
from fedforget.server.service import Service, create_federation
from tests.deadly import deadly_at
from tests.flower.in_process import InProcessGrid
from tests.flower.test_contract import assert_same
from tests.flower.worlds import SEED, USERS, OnFlower, Simulated, node_of
from tests.forks import processes

BAD = 102
#: What is said of round 2 when nobody is connected.
NOBODY = rf"Round 2: 0 of (\d+) devices answered, too few to go on \(\1 × {reasons.NOT_CONNECTED}\)\."
Deliver = Callable[[Message], Message]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[OnFlower]:
    world = OnFlower(tmp_path / "flower")
    yield world
    world.close()


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Simulated]:
    """The same federation in the simulation, where a device that does not count is simply out of reach."""
    reference = Simulated(tmp_path / "reference")
    yield reference
    reference.close()


def without_bad_in_round_2(reference: Simulated, rounds: int = 4) -> None:
    reference.train(1)
    reference.disconnect(BAD)
    reference.train(2)
    reference.disconnect()
    reference.train(rounds)


def faulty_in_round_2(world: OnFlower, change: Callable[[Message, Deliver], list[Message]], rounds: int = 4) -> None:
    """Let what comes from one node in round 2 be changed."""

    def fault(node: int, message: Message, deliver: Deliver) -> list[Message]:
        bad = node == BAD and message.metadata.group_id == "2"
        return change(message, deliver) if bad else [deliver(message)]

    world.grid.fault = fault
    world.train(rounds)


def why(world: OnFlower, round_: int = 2) -> set[str]:
    """Why the users of the bad node are not in a round, which names no other."""
    failures = world.history.record(round_).failures
    assert failures
    assert {node_of(user) for user in failures} == {BAD}
    return set(failures.values())


def test_a_lost_answer_leaves_nothing_behind(world, reference):
    def lose(message: Message, deliver: Deliver) -> list[Message]:
        deliver(message)
        return []

    faulty_in_round_2(world, lose)
    without_bad_in_round_2(reference)
    assert why(world) == {reasons.LATE}
    assert_same(world, reference)


@pytest.mark.parametrize("log", [ff.Log(), ff.Log("float32")], ids=["lengths", "float32"])
def test_a_lost_answer_leaves_nothing_behind_even_if_an_erasure_is_missed_too(log, tmp_path):
    """The device does round 2 in vain, is away for an erasure that branches off later, and then comes back."""
    world, reference = OnFlower(tmp_path / "flower", log=log), Simulated(tmp_path / "reference", log=log)

    def lose(message: Message, deliver: Deliver) -> list[Message]:
        deliver(message)
        return []

    faulty_in_round_2(world, lose, rounds=2)
    without_bad_in_round_2(reference, rounds=2)
    for each in (world, reference):
        each.disconnect(BAD)
        each.train(5)
        leaver = next(user for user in USERS if each.history.first_round_of([user]) in (3, 4, 5))
        assert node_of(leaver) != BAD
        each.forget([leaver], ff.FRU())
        each.disconnect()
        each.train(8)
    assert_same(world, reference)
    world.close()
    reference.close()


def test_while_nobody_is_connected_no_round_is_wasted(world):
    said: list[str] = []
    world.service.fleet.deadline, world.service.fleet.tell = 30.0, said.append
    world.disconnect(101, 102, 103)
    back = threading.Timer(0.5, world.disconnect)
    back.start()
    world.train(2)
    assert re.fullmatch(rf"{NOBODY.replace('2', '1', 1)} Asking again in 1 s\.", said[0])
    assert [len(world.history.record(round_).failures) for round_ in (1, 2)] == [0, 0]


def test_a_round_that_nobody_answers_is_never_stored(world):
    world.train(1)
    before = world.public.digest
    world.disconnect(101, 102, 103)
    for _ in range(2):
        with pytest.raises(NoAnswerError, match=NOBODY):
            world.train(2)
    assert (world.service.rounds, world.public.digest) == (1, before)
    world.disconnect()
    world.train(2)
    assert world.history.record(2).participants


def test_a_replay_that_too_few_answer_is_suspended_and_goes_on(world, tmp_path):
    reference = Simulated(tmp_path / "reference")
    for each in (world, reference):
        each.train(3)
    leaver = world.history.record(1).participants[0]
    world.service.fleet.replay_share = 0.5
    world.disconnect(101, 102, 103)
    with pytest.raises(NoAnswerError, match=r"^Round \d: 0 of \d+ devices answered, too few to go on \(\d+ × "):
        world.forget([leaver], ff.FRU())
    assert world.service.waiting is not None
    assert world.service.rounds == 3
    assert leaver in world.service.members
    with pytest.raises(NoAnswerError):
        world.train(4)
    world.disconnect()
    world.train(4)
    reference.forget([leaver], ff.FRU())
    reference.train(4)
    assert_same(world, reference)
    assert world.service.waiting is None
    reference.close()


def test_half_of_the_devices_must_answer_in_a_replay(tmp_path):
    world = OnFlower(tmp_path, server=ff.ServerConfig(fraction=1.0))
    world.train(2)
    world.service.fleet.replay_share = 0.5
    world.disconnect(101, 102)
    with pytest.raises(NoAnswerError, match=r"^Round 1: \d of 11 devices answered, too few to go on \(\d × "):
        world.forget([USERS[0]], ff.Retrain())
    world.disconnect(101)
    world.train(2)
    (receipt,) = world.service.receipts()
    assert receipt.coverage > 0.5
    world.close()


def test_a_replay_that_requires_more_answers_is_aborted(world):
    world.train(3)
    leaver = world.history.record(1).participants[0]
    world.service.fleet.replay_share = 0.5
    world.disconnect(101, 102, 103)
    with pytest.raises(QuorumError, match=r"^Round 1: 0 of \d devices answered, too few to go on \(\d × "):
        world.forget([leaver], ff.FRU(), require=0.9)
    assert world.service.waiting is None
    assert world.service.queue.waiting() == []


def test_a_lingering_server_says_what_it_waits_for_and_takes_requests(world, monkeypatch):
    world.train(2)
    world.disconnect(101, 102, 103)
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        if "Waiting for devices" in line and len(said) == 2:
            world.disconnect()
        if line.startswith("round 4"):
            raise KeyboardInterrupt

    monkeypatch.setattr("fedforget.server.service.POLL_SECONDS", 0.01)
    with pytest.raises(KeyboardInterrupt):
        world.service.serve(10, linger=True, tell=tell)
    assert "Waiting for devices" in said[0]
    assert world.service.rounds >= 3


def test_after_a_lost_cohort_others_are_asked(tmp_path):
    world = OnFlower(tmp_path, server=ff.ServerConfig(fraction=0.01))  # one user a round
    world.train(1)
    (user,) = world.service._roster().cohort(2, 0.01, SEED)
    world.disconnect(node_of(user))
    world.train(2)
    assert world.history.record(2).participants
    assert world.history.record(2).participants != [user]
    world.close()


def test_a_federation_that_nobody_has_joined_does_not_train(tmp_path):
    create_federation(tmp_path / "run", RunConfig(model=ff.MF(dim=8), engine="flower"), [1, 2, 3])
    grid = InProcessGrid({})
    service = Service(tmp_path / "run", lambda config, registry: FlowerFleet(grid, config, registry, 1.0))
    with pytest.raises(ConfigError, match="0 users are registered, but a round needs 1"):
        service.serve(3)
    assert service.rounds == 0
    service.close()


def test_a_reply_that_cannot_be_read_costs_its_node_alone(world, monkeypatch):
    pull = world.grid.pull_messages

    def trip(message_ids):
        replies = list(pull(message_ids))
        if any(reply.metadata.src_node_id == BAD for reply in replies):
            raise KeyError("arraychunk_ids")
        return replies

    monkeypatch.setattr(world.grid, "pull_messages", trip)
    world.train(2)
    assert {reason for round_ in (1, 2) for reason in world.history.record(round_).failures.values()} == {
        reasons.FAILED
    }
    assert all(world.history.record(round_).participants for round_ in (1, 2))


def test_an_answer_that_comes_after_the_round_has_closed_does_not_count(world, reference):
    late: list[Message] = []

    def delay(message: Message, deliver: Deliver) -> list[Message]:
        late.append(deliver(message))
        return []

    faulty_in_round_2(world, delay, rounds=2)
    world.grid._replies += late
    world.train(4)
    without_bad_in_round_2(reference)
    assert why(world) == {reasons.LATE}
    assert_same(world, reference)


def test_a_message_that_never_arrived_and_a_device_that_fails_are_told_apart(world):
    answers = {
        "2": lambda message: Message(Error(2, "raised"), reply_to=message),
        "3": lambda message: Message(Error(5, "node gone"), reply_to=message),
    }

    def fault(node: int, message: Message, deliver: Deliver) -> list[Message]:
        change = answers.get(message.metadata.group_id) if node == BAD else None
        return [change(message) if change else deliver(message)]

    world.grid.fault = fault
    world.train(3)
    world.disconnect(BAD)
    world.train(4)
    assert (why(world, 2), why(world, 3), why(world, 4)) == (
        {reasons.FAILED},
        {reasons.LOST},
        {reasons.NOT_CONNECTED},
    )


def test_a_message_that_arrives_twice_is_answered_the_same_and_counts_once(world, reference):
    twice: list[tuple[Message, Message]] = []

    def repeat(node: int, message: Message, deliver: Deliver) -> list[Message]:
        twice.append((deliver(message), deliver(message)))
        return list(twice[-1])

    world.grid.fault = repeat
    reference.train(4)
    world.train(4)
    assert_same(world, reference)
    for first, second in twice:
        for name, array in first.content["updates"].items():
            assert array.data == second.content["updates"][name].data


def test_a_message_from_the_past_changes_nothing(world, reference):
    for each in (world, reference):
        each.train(4)
    old = next(message for _, message in world.grid.delivered if message.metadata.group_id == "1")
    asked = messages.unpack_order(old.content).users
    asked_since = {user for round_ in (2, 3, 4) for user in world.service.cohort(round_)}.intersection(asked)
    assert asked_since
    answer = messages.unpack_results(world.grid.deliver(old).content, {1: asked}, 8, 0, False)[1]
    assert dict(answer.failures) == dict.fromkeys(asked_since, reasons.OUTDATED)
    for each in (world, reference):
        each.train(5)
    assert_same(world, reference)


def changed(reply: Message, **arrays: np.ndarray) -> list[Message]:
    for name, array in arrays.items():
        reply.content["updates"][name] = Array(array)
    return [reply]


def test_an_update_with_nan_is_refused_and_counted(world, reference):
    def poison(message: Message, deliver: Deliver) -> list[Message]:
        reply = deliver(message)
        rows = reply.content["updates"]["rows"].numpy().copy()
        rows[:, 3] = np.nan
        return changed(reply, rows=rows)

    faulty_in_round_2(world, poison)
    without_bad_in_round_2(reference)
    assert why(world) == {reasons.NOT_FINITE}
    assert_same(world, reference)


@pytest.mark.parametrize("part", ["rows", "dense", "ptr", "sizes"])
def test_an_update_of_a_wrong_shape_is_refused_and_the_others_count(part, world, reference):
    def cut(message: Message, deliver: Deliver) -> list[Message]:
        reply = deliver(message)
        array = reply.content["updates"][part].numpy()
        wrong = array[:, :-1] if array.ndim == 2 and array.shape[1] else np.concatenate([array, array])
        return changed(reply, **{part: wrong})

    faulty_in_round_2(world, cut)
    without_bad_in_round_2(reference)
    assert why(world) == {reasons.WRONG_SHAPE}
    assert_same(world, reference)


def test_items_that_do_not_exist_are_refused(world):
    def invent(message: Message, deliver: Deliver) -> list[Message]:
        reply = deliver(message)
        items = reply.content["updates"]["items"].numpy().copy()
        items[0] = 2**31 - 1
        return changed(reply, items=items)

    faulty_in_round_2(world, invent)
    assert reasons.UNKNOWN_ITEM in why(world)


def test_a_node_that_speaks_for_another_nodes_user_is_refused(world, reference):
    other = next(user for user in USERS if node_of(user) != BAD)

    def claim(message: Message, deliver: Deliver) -> list[Message]:
        reply = deliver(message)
        users = [other, *reply.content["result"]["users"][1:]]
        reply.content["result"]["users"] = users
        return [reply]

    faulty_in_round_2(world, claim)
    without_bad_in_round_2(reference)
    assert why(world) == {reasons.NOT_ASKED}
    assert_same(world, reference)


def test_an_answer_of_rubbish_is_refused(world):
    faulty_in_round_2(world, lambda message, _: [sealed_reply(message, RecordDict({"x": ConfigRecord()}))])
    assert why(world) == {"the message has no result"}


def test_an_answer_from_a_node_that_never_saw_the_message_is_refused(world, reference):
    def forge(message: Message, deliver: Deliver) -> list[Message]:
        reply = deliver(message)
        reply.content[SEAL] = ConfigRecord({SEAL: bytes(16)})
        return [reply]

    faulty_in_round_2(world, forge)
    without_bad_in_round_2(reference)
    assert why(world) == {reasons.FORGED}
    assert_same(world, reference)


def test_an_order_to_recall_several_rounds_is_refused(world):
    world.train(2)
    clients = world.service.fleet.clients(world.history, world.history)
    user = USERS[0]
    with pytest.raises(NoAnswerError, match=rf"1 of 1 devices answered, .* \(1 × {reasons.ONE_ROUND_ONLY}\)"):
        clients.run(Recall(), {3: [user], 4: [user]})


def test_a_user_without_a_device_is_named(world):
    world.train(1)
    world.service.registry.release([USERS[0]])
    world.train(5)
    failures = [world.history.record(round_).failures for round_ in range(1, 6)]
    assert {user: reason for missing in failures for user, reason in missing.items()} == {USERS[0]: reasons.NO_NODE}


def test_a_device_whose_file_is_lost_starts_anew_nowhere_and_is_named(world):
    world.train(1)
    world.restart()
    for path in (world.states[BAD] / world.service.config.id).glob("*.sqlite*"):
        path.unlink()
    world.train(3)
    assert why(world) == {reasons.NOT_ENROLLED}


# The leaver's device


def test_a_leavers_device_wipes_its_file_and_the_receipt_says_so(world):
    world.train(3)
    forgotten = world.history.record(1).participants[:2]
    paths = [world.member(user).files.path(world.member(user).key) for user in forgotten]
    assert all(path.exists() for path in paths)
    receipt = world.forget(forgotten, ff.FRU())
    assert receipt.wiped == 2
    assert not any(path.exists() for path in paths)
    assert not any(path.parent.joinpath(path.name + end).exists() for path in paths for end in ("-wal", "-shm"))
    stored = (world.run / "receipts" / f"{receipt.request}.json").read_text()
    assert '"wiped": 2' in stored
    for user in forgotten:
        assert cells(world.run, user) == []


def test_a_leavers_device_that_is_away_wipes_when_it_is_back(world):
    world.train(3)
    leaver = next(user for user in world.history.record(1).participants if node_of(user) == BAD)
    path = world.member(leaver).files.path(world.member(leaver).key)
    world.disconnect(BAD)
    receipt = world.forget([leaver], ff.FRU())
    assert receipt.wiped == 0
    assert path.exists()
    assert cells(world.run, leaver) == []
    world.restart()
    world.disconnect()
    world.train(4)
    assert not path.exists()
    assert world.service.receipts()[0].wiped == 1
    assert world.service.registry.wipe_orders() == []


def test_a_device_that_does_not_confirm_is_asked_again(world):
    world.train(2)
    leaver = next(user for user in world.history.record(1).participants if node_of(user) == BAD)

    def deaf(node: int, message: Message, deliver: Deliver) -> list[Message]:
        return [] if message.metadata.message_type == messages.WIPE else [deliver(message)]

    world.grid.fault = deaf
    assert world.forget([leaver], ff.FRU()).wiped == 0
    world.grid.fault = None
    world.train(3)
    assert world.service.receipts()[0].wiped == 1


# The server


def test_a_user_who_is_registered_later_takes_part_from_then_on(tmp_path):
    world = OnFlower(tmp_path)
    node = node_of(USERS[0])
    world.service.registry.release([USERS[0]])
    with world.service.history._db:
        world.service.history._db.execute("DELETE FROM member WHERE user = ?", (USERS[0],))
    world.train(1)
    assert USERS[0] not in world.service.members
    world.service.registry.register(f"ecdsa-sha2-nistp384 KEY{node}", node, [USERS[0]])
    world.train(8)
    assert USERS[0] in world.service.members
    assert any(USERS[0] in world.service.cohort(round_) for round_ in range(2, 9))
    world.close()


def test_requests_are_carried_out_one_after_another_and_a_foolish_one_is_refused(world):
    world.train(2)
    first, second = world.history.record(1).participants[:2]
    wanted = [([first], 0.0), (USERS, 0.0), ([first, second], 0.0), ([first], 0.0), (["nobody"], 0.0)]
    for users, require in wanted:
        ErasureQueue(world.run).add(ErasureRequest.new(users, ff.FRU().settings(), require))
    said: list[str] = []
    world.service.serve(2, tell=said.append)
    assert [len(receipt.users) for receipt in world.service.receipts()] == [1, 1]
    refused = world.service.queue.refused().values()
    assert sorted(reason.split(".")[0] for reason in refused) == [
        "All 11 users are to be forgotten", *["None of its users is a member"] * 2
    ]  # fmt: skip
    assert any("was not carried out" in line for line in said)
    assert world.service.queue.waiting() == []
    for user in (first, second):
        assert cells(world.run, user) == []
        assert not any(user in line for line in said)


KILLS = [
    ("fedforget.server.history", "History", "commit", "before", 3),
    ("fedforget.server.history", "History", "commit", "after", 3),
    ("fedforget.flower.transport", "Transport", "send", "after", 2),
    ("fedforget.flower.transport", "Transport", "send", "after", 6),
    ("fedforget.server.history", "History", "commit", "before", 6),
    ("fedforget.server.factors", "FactorsFolder", "put", "after", 2),
    ("fedforget.server.request", "ErasureRequest", "save", "after", 2),
    ("fedforget.server.run", "Run", "begin_erasure", "after", 1),
    ("fedforget.server.run_config", "RunConfig", "save", "after", 1),
    ("fedforget.server.node_registry", "NodeRegistry", "remove_users", "before", 1),
    ("fedforget.server.node_registry", "NodeRegistry", "remove_users", "after", 1),
    ("fedforget.server.erasure_queue", "ErasureQueue", "remove", "after", 1),
    ("fedforget.server.node_registry", "NodeRegistry", "confirm", "before", 1),
]
METHOD = ff.FRU(calibration="server", parts="all", private="fresh")


def serve_and_die(folder: Path, forgotten: list[str], kill: tuple[str, str, str, str, int]) -> None:
    world = OnFlower(folder, log=ff.Log("float32"))
    ErasureQueue(world.run)
    deadly_at(*kill)
    world.train(3)
    world.forget(forgotten, METHOD)
    raise AssertionError(f"survived {kill}")


def rehearse(folder: Path) -> None:
    """What the forks of these tests do."""
    world = OnFlower(folder, log=ff.Log("float32"))
    world.train(3)
    world.forget(list(world.history.record(2).participants[:2]), METHOD)
    world.close()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Simulated, list[UserId]]]:
    """The same federation without a kill, and who left it."""
    unbroken = Simulated(tmp_path_factory.mktemp("unbroken"), log=ff.Log("float32"))
    unbroken.train(3)
    forgotten = list(unbroken.history.record(2).participants[:2])
    unbroken.forget(forgotten, METHOD)
    unbroken.train(4)
    yield unbroken, forgotten
    unbroken.close()


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS, ids=[f"{when} {owner}.{name} {n}" for _, owner, name, when, n in KILLS])
def test_a_server_that_is_killed_goes_on_as_if_nothing_had_happened(kill, unbroken, tmp_path):
    reference, forgotten = unbroken
    process = processes.Process(target=serve_and_die, args=(tmp_path / "w", forgotten, kill))
    process.start()
    process.join(300)
    assert process.exitcode == -9
    world = OnFlower(tmp_path / "w", log=ff.Log("float32"))
    world.train(3)
    if set(forgotten) & set(world.history.membership.users()):  # the request was not made yet, or only just
        world.forget(forgotten, METHOD)
    world.train(4)
    assert_same(world, reference)
    assert [receipt.wiped for receipt in world.service.receipts()] == [2]
    for user in forgotten:
        files = [path.name for path in world.states[node_of(user)].rglob("*.sqlite")]
        assert files
        assert f"{user_key(user):016x}.sqlite" not in files
        assert cells(world.run, user) == []
    world.close()
