"""The audit of a request on a network: devices, users who come back, items of users who stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.device.device import Device
from fedforget.runtime.randomness import UserId
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest
from fedforget.server.request_audit import RequestAudit, audit_request
from tests.flower.worlds import TEST, TRAIN, USERS, OnFlower, key_of, node_of

LEAVER, SALT = USERS[4], "00112233445566778899aabbccddeeff"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[OnFlower]:
    world = OnFlower(tmp_path, server=ff.ServerConfig(fraction=1.0))
    world.train(3)
    yield world
    world.close()


def forget(world: OnFlower, user: UserId) -> Receipt:
    """As ``forget``, with a salt that is known."""
    request = ErasureRequest(f"{len(world.service.receipts()):016x}", (user,), ff.Retrain().settings(), SALT)
    ErasureQueue(world.run).add(request)
    world.service.serve(world.service.rounds)
    return world.service.receipts()[-1]


def audit(world: OnFlower, receipt: Receipt, **options: Any) -> tuple[RequestAudit, dict[str, bool | None]]:
    given = {"users": [LEAVER], "salts": [SALT], **options}
    result = audit_request(world.service, world.run, receipt.request, "0", **given)
    return result, {check.name: check.passed for check in result.checks}


def test_devices_must_have_confirmed(world: OnFlower) -> None:
    world.disconnect(node_of(LEAVER))
    receipt = forget(world, LEAVER)
    result, found = audit(world, receipt)
    assert result.result == "failed"
    assert (found["devices"], found["files"]) == (False, True)
    world.disconnect()
    world.train(4)
    result, found = audit(world, receipt)
    assert result.result == "passed", result.checks
    assert found["devices"] is True


def test_a_user_who_comes_back_is_no_failure(world: OnFlower) -> None:
    receipt = forget(world, LEAVER)
    assert audit(world, receipt)[0].result == "passed"
    node = node_of(LEAVER)
    world.service.register(key_of(node), node, [LEAVER], readmit=True)
    assert audit(world, receipt)[0].result == "incomplete"
    Device(world.states[node]).join(world.invitation, LEAVER, TRAIN.item_ids_of(LEAVER), TEST.item_ids_of(LEAVER))
    world.train(5)
    result, found = audit(world, receipt)
    assert (result.result, found["persons"], found["history"]) == ("incomplete", None, True), result.checks


def test_items_of_a_user_who_stays_are_on_the_device(world: OnFlower) -> None:
    items = TRAIN.item_ids_of(LEAVER)[:2]
    Device(world.states[node_of(LEAVER)]).forget(LEAVER, items)
    world.train(4)
    (receipt,) = world.service.receipts()
    assert list(receipt.partial.values()) == [2]
    result, found = audit(world, receipt, salts=[], users=[LEAVER])
    assert (result.result, found["interactions"]) == ("incomplete", None)
