"""Condensed replay on Flower: one message to each node and step, and what becomes of a step that meets a fault."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.flower import messages
from tests.flower.test_contract import assert_same
from tests.flower.worlds import NODES, USERS, OnFlower, Simulated

METHOD = ff.FRU(stride=3)


@pytest.fixture
def world(tmp_path: Path):
    made = OnFlower(tmp_path / "flower")
    yield made
    made.close()


@pytest.fixture
def reference(tmp_path: Path):
    made = Simulated(tmp_path / "simulation")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("method", "steps"), [(METHOD, 3), (ff.FRU(), 2), (ff.Retrain(stride=4), 2), (ff.Retrain(steps=3), 3)], ids=str
)
def test_each_node_gets_one_message_a_step(method, steps, world):
    world.train(7)
    before = len(world.grid.delivered)
    receipt = world.forget(world.history.record(1).participants[:1], method)
    sent = [
        (message.metadata.group_id, node)
        for node, message in world.grid.delivered[before:]
        if message.metadata.message_type == messages.RUN
    ]
    assert receipt.communication_rounds == steps
    assert len({group for group, _ in sent}) == steps
    assert max(Counter(sent).values()) == 1
    assert len(sent) <= steps * NODES
    assert receipt.asked >= receipt.messages


def test_a_step_that_is_lost_on_the_way_leaves_its_users_out_of_all_its_rounds(world, reference):
    """As with devices that are out of reach in the simulation."""
    for each in (world, reference):
        each.train(6)
    leaver = next(user for user in world.history.record(1).participants if user != USERS[0])
    for each in (world, reference):
        each.disconnect(101)
        receipt = each.forget([leaver], METHOD)
        assert receipt.coverage < 1
        each.disconnect()
        each.train(7)
    assert_same(world, reference)


def test_a_server_that_ends_between_two_steps_goes_on_with_the_next(world, reference, monkeypatch):
    for each in (world, reference):
        each.train(7)
    leaver = world.history.record(1).participants[:1]
    commit = type(world.history).commit

    def ends(self, records, state):
        if records[0].round > 4:
            raise KeyboardInterrupt
        commit(self, records, state)

    with monkeypatch.context() as patched:
        patched.setattr(type(world.history), "commit", ends)
        with pytest.raises(KeyboardInterrupt):
            world.forget(leaver, METHOD)
    world.restart()
    world.service.serve(7)
    reference.forget(leaver, METHOD)
    assert_same(world, reference)
    assert np.isfinite(world.public.items).all()
