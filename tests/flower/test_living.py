"""Devices that go on living: they recommend with the newest model and get new interactions, as the simulation does."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.cli.main import app
from fedforget.device.device import Device
from tests.flower.worlds import DATA, TEST, TRAIN, USERS, OnFlower, Simulated, node_of

ITEMS = TRAIN.item_ids.tolist()


@pytest.fixture(params=["mf", "lightgcn", "ials"])
def worlds(request, tmp_path: Path) -> Iterator[tuple[Simulated, OnFlower]]:
    model = {"mf": ff.MF(dim=8), "lightgcn": ff.LightGCN(dim=8), "ials": ff.IALS(dim=8)}[request.param]
    made = Simulated(tmp_path / "simulated", model=model), OnFlower(tmp_path / "flower", model=model)
    made[0].fed.test = TEST
    for user in USERS:
        device(made[1], user).set_catalogue(made[1].invitation)
    yield made
    for world in made:
        world.close()


def device(world: OnFlower, user: object) -> Device:
    return Device(world.states[node_of(user)], world.service.config.id)  # type: ignore[arg-type]


def unseen(user: object, count: int) -> list[object]:
    own = DATA.item_ids[DATA.items_of(DATA.user_index(user))].tolist()
    return [item for item in ITEMS if item not in own][:count]


def assert_equal(simulated: Simulated, world: OnFlower) -> None:
    np.testing.assert_allclose(simulated.public.items, world.public.items, rtol=1e-5, atol=1e-6)


def test_a_device_recommends_with_the_newest_model_it_was_sent(worlds):
    simulated, world = worlds
    for each in worlds:
        each.train(4)
    world.service.evaluate()  # brings the newest model to every device
    for user in USERS:
        mine, theirs = device(world, user).recommend(user, 5), simulated.fed.recommend(user, 5)
        assert [item for item, _ in mine] == [item for item, _ in theirs]
        np.testing.assert_allclose([s for _, s in mine], [s for _, s in theirs], rtol=1e-4, atol=1e-6)
        own = set(DATA.item_ids[DATA.items_of(DATA.user_index(user))].tolist())
        everything = device(world, user).recommend(user, 100)
        assert own.isdisjoint(item for item, _ in everything)
        assert len(everything) == len(ITEMS) - len(own)


def test_candidates_and_exclusions(worlds):
    _, world = worlds
    world.train(1)
    world.service.evaluate()
    some = unseen(USERS[0], 4)
    best = device(world, USERS[0]).recommend(USERS[0], 10, candidates=some, exclude=some[:1])
    assert {item for item, _ in best} == set(some[1:])


def test_added_interactions_count_as_in_the_simulation(worlds):
    simulated, world = worlds
    for each in worlds:
        each.train(3)
    for user in USERS[:4]:
        new = unseen(user, 2)
        assert device(world, user).add(user, new) == 2
        assert device(world, user).add(user, new[:1]) == 0
        simulated.fed.add(ff.Interactions.from_pairs([user] * 2, new))
    for each in worlds:
        each.train(6)
    assert_equal(simulated, world)
    method = ff.Retrain() if simulated.fed.model.closed_form else ff.FRU(replay_fraction=0.5, replay="logged", stride=2)
    for each in worlds:
        assert not each.forget([USERS[5]], method).missing
        each.train(8)
    assert_equal(simulated, world)


def test_what_is_not_there_is_named(worlds, tmp_path):
    _, world = worlds
    here = device(world, USERS[0])
    with pytest.raises(ff.RunError, match="has not received a model yet"):
        here.recommend(USERS[0])
    with pytest.raises(ff.ConfigError, match="User 'nobody' is not on this device"):
        here.recommend("nobody")
    with pytest.raises(ff.DataError, match="Item 'no such item' is not in the federation's catalogue"):
        here.add(USERS[0], ["no such item"])
    with pytest.raises(ff.DataError, match="no items to add"):
        here.add(USERS[0], [])
    with pytest.raises(ff.ConfigError, match="holds 0 federations"):
        Device(tmp_path / "empty").users()


def test_a_device_without_users_keeps_no_model(worlds):
    _, world = worlds
    world.train(2)
    node = world.states[node_of(USERS[0])]
    folder = node / world.service.config.id
    assert (folder / "model.safetensors").exists()
    for user in [user for user in USERS if node_of(user) == node_of(USERS[0])]:
        device(world, user).host.remove(world.service.config.id, str(user))
    assert not (folder / "model.safetensors").exists()


def test_the_command_line_of_a_device(worlds):
    _, world = worlds
    world.train(1)
    world.service.evaluate()
    user, state = USERS[0], str(world.states[node_of(USERS[0])])

    def run(*words: str) -> dict:  # type: ignore[type-arg]
        result = CliRunner().invoke(app, ["device", *words, "--state", state, "--user", str(user), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    first = run("recommend", "--k", "3")["items"]
    assert len(first) == 3
    assert run("add", str(first[0]["item"])) == {"user": user, "added": 1, "known": 0}
    assert first[0]["item"] not in [entry["item"] for entry in run("recommend", "--k", "30")["items"]]


def test_a_file_of_the_format_before_is_migrated(worlds):
    simulated, world = worlds
    for each in worlds:
        each.train(2)
    for path in (world.states[node_of(USERS[0])] / world.service.config.id).glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("ALTER TABLE interaction DROP COLUMN since")
            db.execute("DROP TABLE unwanted")
            db.execute("UPDATE meta SET value = '2' WHERE name = 'format'")
    for each in worlds:
        each.train(4)
    assert_equal(simulated, world)
