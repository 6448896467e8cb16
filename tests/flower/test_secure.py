"""Secure aggregation on both engines: the same federation as with plain updates, and the server only sees sums."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from flwr.app import Message

from fedforget.errors import NoAnswerError
from fedforget.flower import messages
from fedforget.protocol import reasons
from fedforget.server.unlearning.cover import Cover
from tests.deadly import deadly_at
from tests.flower.test_contract import METHODS, assert_same
from tests.flower.worlds import USERS, OnFlower, Simulated, node_of
from tests.forks import processes

SECURE = ff.ServerConfig(fraction=0.8, secure=True, minimum=3)
PLAIN = ff.ServerConfig(fraction=0.8)
MODELS = {"mf": ff.MF(dim=8), "lightgcn": ff.LightGCN(dim=8), "ials": ff.IALS(dim=8), "ncf": ff.NCF(dim=8)}
World = Simulated | OnFlower


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(engine: type[World], **changes: Any) -> World:
        made.append(engine(tmp_path / str(len(made)), **{"server": SECURE, **changes}))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.mark.parametrize("model", MODELS)
def test_training_equals_the_simulation_and_plain_aggregation(make, model: str) -> None:
    settings: dict[str, Any] = {"model": MODELS[model]}
    if model == "ials":
        settings["training"] = ff.LocalTraining(epochs=1)
    flower, simulated = make(OnFlower, **settings), make(Simulated, **settings)
    plain = make(Simulated, server=PLAIN, **settings)
    for world in (flower, simulated, plain):
        world.train(4)
    assert_same(flower, simulated)
    np.testing.assert_allclose(flower.public.items, plain.public.items, atol=1e-4)
    assert flower.history.record(2).loss == pytest.approx(plain.history.record(2).loss, abs=1e-4)
    assert flower.measure()["full"] == pytest.approx(simulated.measure()["full"], abs=1e-5)


@pytest.mark.parametrize("rule", ["mean", "touched", "root"])
def test_every_rule_that_works_on_sums(make, rule: str) -> None:
    secure = make(OnFlower, server=ff.ServerConfig(fraction=0.8, secure=True, minimum=3, aggregation=rule))
    plain = make(Simulated, server=ff.ServerConfig(fraction=0.8, aggregation=rule))
    for world in (secure, plain):
        world.train(2)
    np.testing.assert_allclose(secure.public.items, plain.public.items, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_every_unlearning_method(make, name: str, monkeypatch) -> None:
    """Equal to plain aggregation in which the same users are left out."""
    method, log = METHODS[name]
    monkeypatch.setattr("fedforget.server.erasure.Cover", lambda *args: Cover(*args[:2], SECURE.minimum, *args[3:]))
    flower, simulated, plain = make(OnFlower, log=log), make(Simulated, log=log), make(Simulated, log=log, server=PLAIN)
    for world in (flower, simulated, plain):
        world.train(5)
        world.forget([USERS[0]], method)
    assert_same(flower, simulated)
    if log.selection == "all":  # rounding decides between rows of equal importance
        np.testing.assert_allclose(flower.public.items, plain.public.items, atol=2e-3)
    for user in (USERS[1], USERS[2]):
        np.testing.assert_allclose(flower.private(user), simulated.private(user), atol=1e-5)


def test_the_server_gets_no_updates(make) -> None:
    world = make(OnFlower)
    replies: list[Message] = []
    world.grid.fault = lambda node, message, deliver: [_kept(replies, deliver(message))]
    world.train(2)
    contents = [reply.content for reply in replies]
    assert any("masked" in content.array_records for content in contents)
    assert not any("updates" in content.array_records for content in contents)


@pytest.mark.parametrize("engine", [Simulated, OnFlower])
@pytest.mark.parametrize("method", [ff.FRU(), ff.Retrain(), ff.Retrain(steps=2)])
def test_no_two_sums_differ_by_one_user(make, engine: type[World], method: ff.Method) -> None:
    world = make(engine, server=_everybody())
    world.train(3)
    before = {round_: set(world.history.record(round_).participants) for round_ in (1, 2, 3)}
    world.forget([USERS[0]], method)
    for round_ in (1, 2, 3):
        after = set(world.history.record(round_).participants)
        assert not after or len(before[round_] - after) >= 3
    assert any(world.history.record(round_).participants for round_ in (1, 2, 3))


def test_if_too_few_answer_a_replay_nothing_is_revealed(make) -> None:
    """Asked again, others would answer, and the two sums would tell the difference."""
    world = make(OnFlower, server=_everybody())
    world.train(2)
    world.service.fleet.replay_share = 0.8
    world.disconnect(103)
    kinds: list[str] = []
    world.grid.fault = lambda node, message, deliver: [kinds.append(message.metadata.message_type), deliver(message)][
        1:
    ]
    with pytest.raises(NoAnswerError, match=reasons.TOO_FEW):
        world.forget([USERS[0]], ff.Retrain())
    assert messages.RUN in kinds
    assert messages.REVEAL not in kinds
    world.disconnect()
    world.train(2)
    assert messages.REVEAL in kinds
    assert len(world.service.receipts()) == 1


def test_devices_that_disappear_before_the_first_message(make) -> None:
    flower, simulated = make(OnFlower), make(Simulated)
    for world in (flower, simulated):
        world.train(1)
        world.disconnect(102)
        world.train(3)
    assert_same(flower, simulated)


def test_devices_that_disappear_between_the_messages_are_in_the_sum(make) -> None:
    """Their neighbours have the shares of their self seeds."""
    flower, simulated = make(OnFlower, server=_everybody()), make(Simulated, server=_everybody())

    def fault(node: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        lost = message.metadata.message_type == messages.REVEAL and node == 102
        return [] if lost else [deliver(message)]

    flower.grid.fault = fault
    for world in (flower, simulated):
        world.train(2)
    assert_same(flower, simulated)


def test_a_device_lost_before_and_another_between_the_messages(make) -> None:
    """Nobody can remove the masks between the two: the others are asked again without both."""
    flower, simulated = make(OnFlower, server=_everybody()), make(Simulated, server=_everybody())
    for world in (flower, simulated):
        world.train(1)
    flower.disconnect(102)

    def fault(node: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        lost = message.metadata.message_type == messages.REVEAL and node == 103
        return [] if lost else [deliver(message)]

    flower.grid.fault = fault
    simulated.away = {user for user in USERS if node_of(user) in (102, 103)}
    for world in (flower, simulated):
        world.train(2)
    assert_same(flower, simulated)
    assert set(flower.history.record(2).failures.values()) == {reasons.NOT_CONNECTED, reasons.NOT_REVEALED}


@pytest.mark.parametrize("kind", ["words", "shares", "checks", "revealed"])
def test_corrupted_answers_do_not_change_the_sum(make, kind: str) -> None:
    flower, simulated = make(OnFlower, server=_everybody()), make(Simulated, server=_everybody())

    def fault(node: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        reply = deliver(message)
        if node == 103:
            _corrupt(reply, kind)
        return [reply]

    flower.grid.fault = fault
    if kind == "words":  # a vector of another size; any other vector is an update like others
        simulated.away = {user for user in USERS if node_of(user) == 103}
    for world in (flower, simulated):
        world.train(1)
    np.testing.assert_allclose(flower.public.items, simulated.public.items, atol=1e-5) if kind == "words" else None
    plain = make(Simulated, server=ff.ServerConfig(fraction=1.0))
    plain.away = set(USERS) - set(flower.history.record(1).participants)
    plain.train(1)
    np.testing.assert_allclose(flower.public.items, plain.public.items, atol=1e-4)


def test_repeated_messages_get_the_same_masks(make) -> None:
    flower, simulated = make(OnFlower), make(Simulated)

    def fault(node: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        deliver(message)
        return [deliver(message)]

    flower.grid.fault = fault
    for world in (flower, simulated):
        world.train(3)
    assert_same(flower, simulated)


def test_too_few_devices_store_nothing(make) -> None:
    world = make(OnFlower, server=ff.ServerConfig(fraction=0.8, secure=True, minimum=6))
    world.disconnect(102, 103)
    with pytest.raises(NoAnswerError, match=reasons.TOO_FEW):
        world.train(1)
    assert world.history.last_round <= 0
    world.disconnect()
    world.train(1)
    assert world.history.last_round == 1


def test_a_device_that_was_enrolled_again_has_a_new_key(make) -> None:
    world = make(OnFlower, server=_everybody())
    world.train(1)
    user = USERS[0]
    world.member(user)._set("sum_key", "11" * 32)
    world.train(2)
    assert world.history.record(2).failures == {user: reasons.OTHER_KEY}
    world.train(3)
    assert not world.history.record(3).failures


KILLS = [
    *(("fedforget.flower.transport", "Transport", "send", "after", n) for n in (2, 3, 6, 10)),
    ("fedforget.server.node_registry", "NodeRegistry", "set_sum_keys", "before", 1),
    ("fedforget.server.node_registry", "NodeRegistry", "set_sum_keys", "after", 1),
    ("fedforget.server.history", "History", "commit", "before", 3),
    ("fedforget.server.history", "History", "commit", "before", 6),
    ("fedforget.server.run", "Run", "begin_erasure", "after", 1),
]


def serve_and_die(folder: Path, kill: tuple[str, str, str, str, int]) -> None:
    world = OnFlower(folder, server=_everybody())
    deadly_at(*kill)
    world.train(3)
    world.forget([USERS[0]], ff.FRU())
    raise AssertionError(f"survived {kill}")


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS, ids=[f"{when} {owner}.{name} {n}" for _, owner, name, when, n in KILLS])
def test_a_server_that_is_killed_goes_on_as_if_nothing_had_happened(make, kill, tmp_path) -> None:
    reference = make(Simulated, server=_everybody())
    reference.train(3)
    reference.forget([USERS[0]], ff.FRU())
    process = processes.Process(target=serve_and_die, args=(tmp_path / "killed", kill))
    process.start()
    process.join(300)
    assert process.exitcode == -9
    world = OnFlower(tmp_path / "killed", server=_everybody())
    world.train(3)
    if USERS[0] in world.history.membership.users():
        world.forget([USERS[0]], ff.FRU())
    assert_same(world, reference)
    world.close()


def test_a_server_restored_from_a_backup_goes_on(make, tmp_path) -> None:
    """Its orders have the numbers of earlier ones, which devices refuse; they never answer one context twice."""
    world = make(OnFlower, server=_everybody())
    world.train(2)
    world.close()
    shutil.copytree(world.run, tmp_path / "backup")
    world.service = world._open()
    world.train(4)
    world.close()
    shutil.rmtree(world.run)
    shutil.copytree(tmp_path / "backup", world.run)
    world.service = world._open()
    for _ in range(30):  # each attempt has the next number
        with suppress(NoAnswerError):
            world.train(4)
    assert world.history.last_round == 4
    reference = make(Simulated, server=_everybody())
    reference.train(4)
    for round_ in range(1, 5):
        assert world.history.record(round_).participants == reference.history.record(round_).participants
    np.testing.assert_allclose(world.public.items, reference.public.items, atol=1e-3)  # logs hold rounded vectors


def _everybody() -> ff.ServerConfig:
    return ff.ServerConfig(fraction=1.0, secure=True, minimum=3)


def _kept(replies: list[Message], reply: Message) -> Message:
    replies.append(reply)
    return reply


def _corrupt(reply: Message, kind: str) -> None:
    if reply.has_error():
        return
    content = reply.content
    if kind == "words" and "masked" in content.array_records:
        from fedforget.flower.arrays import pack

        content["masked"] = pack(words=np.zeros((len(content["result"]["users"]), 7), np.uint32))
    elif kind in ("shares", "checks") and "masked" in content.array_records:
        content["result"][kind] = [bytes(len(each)) for each in content["result"][kind]]
    elif kind == "revealed" and "revealed" in content.config_records:
        content["revealed"]["revealed"] = [bytes(len(each)) for each in content["revealed"]["revealed"]]
