"""Whatever goes wrong on a network, no text that reaches a log of the server or of a device names a user."""

from __future__ import annotations

import errno
import json
import logging
import sqlite3
import traceback
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from flwr.app import ConfigRecord, Message

from fedforget.device.log.user_files import UserFiles
from fedforget.errors import ConfigError
from fedforget.flower import client_app
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.aggregation import screen
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.history import History
from fedforget.server.request import ErasureRequest
from fedforget.server.run_config import RunConfig
from fedforget.server.service import create_federation
from tests.flower.worlds import USERS, OnFlower, node_of, options

BAD = 102
HOSTED = [user for user in USERS if node_of(user) == BAD]


def file_of(world: OnFlower, user: UserId) -> Path:
    return world.states[node_of(user)] / world.service.config.id / f"{user_key(user):016x}.sqlite"


def change(world: OnFlower, statement: str, *values: object) -> None:
    """Change the file of every user of the bad node."""
    for user in HOSTED:
        with closing(sqlite3.connect(file_of(world, user))) as db, db:
            db.execute(statement, values)


def replies(world: OnFlower, name: str, **values: object) -> None:
    """The bad node replies with other values in a record."""

    def fault(node: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        reply = deliver(message)
        if node == BAD and not reply.has_error() and name in reply.content.config_records:
            reply.content[name] = ConfigRecord({**reply.content.config_records[name], **values})
        return [reply]

    world.grid.fault = fault


def orders(world: OnFlower, **values: object) -> None:
    """The bad node gets orders with other values."""

    def fault(node: int, message: Message, deliver: Callable[[Message], Message]) -> list[Message]:
        if node == BAD and "order" in message.content.config_records:
            message.content["order"] = ConfigRecord({**message.content.config_records["order"], **values})
        return [deliver(message)]

    world.grid.fault = fault


def queued(world: OnFlower, users: list[UserId], damage: tuple[str, str] = ("", "")) -> None:
    ErasureQueue(world.run).add(ErasureRequest.new(users, ff.FRU().settings()))
    (path,) = (world.run / "queue").glob("*.json")
    path.write_text(path.read_text().replace(*damage) if damage[0] else path.read_text())


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def raw(*_: object, **__: object) -> None:
    raise KeyError(0)


#: What goes wrong, and what of it must be found in the texts.
SITUATIONS: dict[str, tuple[Callable[[OnFlower, pytest.MonkeyPatch], object], str]] = {
    "a file is no database": (
        lambda w, _: [file_of(w, user).write_bytes(b"no database " * 500) for user in HOSTED],
        "file on the device is damaged",
    ),
    "a file is empty": (lambda w, _: [file_of(w, u).write_bytes(b"") for u in HOSTED], "device is damaged"),
    "a file is gone": (lambda w, _: [file_of(w, user).unlink() for user in HOSTED], "not enrolled"),
    "a file is of someone else": (
        lambda w, _: change(w, "UPDATE meta SET value = ? WHERE name = 'user'", json.dumps("somebody")),
        "not enrolled",
    ),
    "terms are no JSON": (lambda w, _: change(w, "UPDATE meta SET value = '{' WHERE name = 'terms'"), "is damaged"),
    "entries are damaged": (lambda w, _: change(w, "UPDATE entry SET body = zeroblob(30)"), "round 3/3"),
    "private parameters are damaged": (lambda w, _: change(w, "UPDATE private SET crc = 1"), "round 3/3"),
    "items do not exist": (lambda w, _: change(w, "INSERT INTO interaction VALUES (99999, 'train', 0)"), ""),
    "there are no items": (lambda w, _: change(w, "DELETE FROM interaction"), ""),
    "a device has no room": (
        lambda w, m: m.setattr(UserFiles, "change", lambda *_, **__: full()),
        "Nothing is stored",
    ),
    "a device fails": (lambda w, m: m.setattr(client_app.Host, "run", raw), "Nothing is stored"),
    "nobody is connected": (lambda w, _: w.disconnect(101, 102, 103), "Nothing is stored"),
    "a reply has a user for a list": (lambda w, _: replies(w, "result", users=HOSTED[0]), "its users is of type str"),
    "a reply has a user for a number": (lambda w, _: replies(w, "result", seconds=HOSTED[0]), "its seconds is of type"),
    "a reply is about others": (
        lambda w, _: replies(w, "result", failed=[USERS[0]], failed_rounds=[1], reasons=["away"]),
        "not asked for",
    ),
    "a reason names somebody": (
        lambda w, _: replies(w, "result", users=[], rounds=[], failed=[], failed_rounds=[], reasons=[HOSTED[0]]),
        "contradicts itself",
    ),
    "an order lists users of two types": (lambda w, _: orders(w, users=[*HOSTED, "x", HOSTED[0]]), ""),
    "an order has a user for a number": (lambda w, _: orders(w, number=HOSTED[0]), "its number is of type"),
    "everyone is to be forgotten": (lambda w, _: queued(w, USERS), "was not carried out"),
    "nobody known is to be forgotten": (lambda w, _: queued(w, ["person-who"]), ""),
    "a request is cut": (lambda w, _: queued(w, [USERS[0]], ('"method"', '"meth')), "cannot be read"),
    "a request names somebody else": (lambda w, _: queued(w, [USERS[0]], (USERS[0], USERS[1])), "its digest"),
    "the server has no room": (lambda w, m: m.setattr(History, "commit", full), "No space left"),
    "updates are rejected": (
        lambda w, m: m.setattr("fedforget.server.rounds.screen", lambda updates, *a, **k: reject(updates, *a, **k)),
        "NaN",
    ),
}


def reject(updates, *given, **settings):  # type: ignore[no-untyped-def]
    updates.rows[:] = float("nan")
    return screen(updates, *given, **{**settings, "numbers": True})


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_text_that_reaches_a_log_names_a_user(situation, tmp_path, monkeypatch, caplog, capfd):
    world = OnFlower(tmp_path, server=ff.ServerConfig(fraction=1.0))
    world.train(2)
    texts: list[str] = []
    monkeypatch.setattr(world.grid, "deliver", recording(world.grid.deliver, texts))
    caplog.set_level(logging.DEBUG)
    logging.getLogger("flwr").addHandler(caplog.handler)
    break_it, expected = SITUATIONS[situation]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with monkeypatch.context() as patch:
            break_it(world, patch)
            for attempt in (lambda: world.service.serve(3, evaluate_every=1, tell=texts.append), world.measure):
                try:
                    attempt()
                except Exception:  # as Flower logs it
                    texts.append(traceback.format_exc())
    logging.getLogger("flwr").removeHandler(caplog.handler)
    texts += [str(each.message) for each in told]
    texts += [*capfd.readouterr(), caplog.text]
    texts += [path.read_text() for path in (world.run / "queue").glob("*.refused")]
    texts += [
        reason for r in range(1, world.service.rounds + 1) for reason in world.history.record(r).failures.values()
    ]
    found = "\n".join(texts)
    assert expected in found
    assert [user for user in (*USERS, "person-who") if str(user) in found] == []
    world.close()


def recording(deliver: Callable[[Message], Message], texts: list[str]) -> Callable[[Message], Message]:
    """A delivery that also keeps the text of an exception that leaves the device's app, as Flower logs it."""

    def delivered(message: Message) -> Message:
        reply = deliver(message)
        if reply.has_error():
            texts.append(str(reply.error.reason))
        return reply

    return delivered


def test_a_network_has_no_list_of_users_who_join_later(tmp_path):
    config = RunConfig(engine="flower", **{**options(), "joins": {"person-who": 2}})
    with pytest.raises(ConfigError, match="joins names 1 users") as refused:
        create_federation(tmp_path / "run", config, [1, 2, 3])
    assert "person-who" not in str(refused.value)
