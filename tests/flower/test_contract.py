"""The contract of every engine: the same federation comes out, whoever carries the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.errors import QuorumError
from tests.flower.worlds import USERS, OnFlower, Simulated, node_of

World = Simulated | OnFlower
Make = Callable[..., World]

FLOAT = ff.Log("float32")
METHODS = {
    "fru": (ff.FRU(stride=1), ff.Log()),
    "fru in steps": (ff.FRU(stride=2), ff.Log()),
    "fru in one step": (ff.FRU(), ff.Log()),
    "fru on logged items": (ff.FRU(replay="logged", replay_fraction=0.5, stride=1), ff.Log()),
    "fru on logged items in steps": (ff.FRU(replay="logged", replay_fraction=0.5, stride=3), ff.Log("int8")),
    "fru at the server": (ff.FRU(calibration="server", parts="all", private="fresh"), FLOAT),
    "fru at the server, important rows": (ff.FRU(calibration="server"), ff.Log("int8", "importance", 0.5)),
    "retrain": (ff.Retrain(), ff.Log()),
    "retrain in steps": (ff.Retrain(stride=3), ff.Log()),
    "retrain anew": (ff.Retrain(steps=2, fraction=0.8), ff.Log()),
    "fedremove": (ff.FedRemove(), FLOAT),
    "continue": (ff.Continue(0.5), ff.Log()),
}


@pytest.fixture(params=[Simulated, OnFlower], ids=["simulation", "flower"])
def make(request, tmp_path: Path) -> Iterator[Make]:
    """Makes a federation on the engine."""
    made: list[World] = []

    def make(**changes: Any) -> World:
        made.append(request.param(tmp_path / str(len(made)), **changes))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[Make]:
    """Makes the same federation on the simulation, to compare with."""
    made: list[World] = []

    def make(**changes: Any) -> World:
        made.append(Simulated(tmp_path / f"reference-{len(made)}", **changes))
        return made[-1]

    yield make
    for world in made:
        world.close()


def assert_same(world: World, other: World) -> None:
    """The same rounds with the same people, and the same parameters, public and private, to float tolerance."""
    assert world.history.last_round == other.history.last_round
    assert world.history.usable_rounds() == other.history.usable_rounds()
    for round_ in range(1, world.history.last_round + 1):
        mine, theirs = world.history.record(round_), other.history.record(round_)
        assert list(mine.participants) == list(theirs.participants)
        assert set(mine.failures) == set(theirs.failures)
    for round_ in world.history.usable_rounds():
        for name in ("items", "dense"):
            close = getattr(world.history.snapshot(round_), name), getattr(other.history.snapshot(round_), name)
            np.testing.assert_allclose(*close, rtol=1e-5, atol=1e-6)
        mine, theirs = world.history.state(round_).moments, other.history.state(round_).moments
        assert set(mine) == set(theirs)
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-5, atol=1e-6)
    for user in world.history.membership.users():
        np.testing.assert_allclose(world.private(user), other.private(user), rtol=1e-5, atol=1e-6)


def test_a_round_asks_its_cohort_and_moves_the_model(make):
    world = make()
    before = world.public
    world.train(3)
    assert world.history.last_round == 3
    for round_ in (1, 2, 3):
        record = world.history.record(round_)
        assert len(record.participants) == 6
        assert not record.failures
        assert 0.5 < record.loss < 0.8
        assert record.sent > 0
        assert record.epochs == 3
    assert not np.allclose(before.items, world.public.items)


def test_training_gives_what_the_simulation_gives(make, reference):
    world, other = make(), reference()
    for each in (world, other):
        each.train(4)
    assert_same(world, other)


@pytest.mark.parametrize(
    ("changes", "method"),
    [
        ({"model": ff.LightGCN(dim=8)}, ff.FRU(stride=2)),
        ({"model": ff.NCF(dim=8, hidden=(8, 8, 4))}, ff.FRU()),
        ({"model": ff.IALS(dim=8, reg=1.0)}, ff.Retrain()),
        ({"model": ff.IALS(dim=8, reg=1.0)}, ff.Retrain(steps=1)),
        ({"model": ff.IALS(dim=8, reg=1.0), "log": FLOAT}, ff.FedRemove()),
        ({"training": ff.LocalTraining(epochs=3, batch=16, lr=0.01, refit=True)}, ff.FRU()),
    ],
    ids=["lightgcn", "ncf", "ials", "ials, anew", "ials, fedremove", "mf, refit"],
)
def test_every_model_trains_and_forgets_as_in_the_simulation(changes, method, make, reference):
    world, other = make(**changes), reference(**changes)
    for each in (world, other):
        each.train(2)
        each.forget(each.history.record(1).participants[:1], method)
        each.train(3)
    assert_same(world, other)


@pytest.mark.parametrize(
    "server",
    [
        ff.ServerConfig(0.5, optimiser=ff.Adam(horizon=4)),
        ff.ServerConfig(0.5, "root", optimiser=ff.SGD(lr=0.3, momentum=0.5)),
        ff.ServerConfig(0.5, "touched", optimiser=ff.Adagrad()),
    ],
    ids=["adam", "root with momentum", "adagrad"],
)
@pytest.mark.parametrize("name", ["fru", "fru in steps", "fru at the server"])
def test_every_optimiser_trains_and_forgets_as_in_the_simulation(server, name, make, reference):
    method, log = METHODS[name]
    world, other = make(server=server, log=log), reference(server=server, log=log)
    for each in (world, other):
        each.train(3)
        each.forget(each.history.record(2).participants[:1], method)
        each.train(4)
    assert_same(world, other)


@pytest.mark.parametrize("name", METHODS)
def test_forgetting_gives_what_the_simulation_gives(name, make, reference):
    method, log = METHODS[name]
    world, other = make(log=log), reference(log=log)
    for each in (world, other):
        each.train(4)
        forgotten = each.history.record(2).participants[:2]
        receipt = each.forget(forgotten, method)
        assert receipt.coverage == 1
        assert receipt.digest_after == each.public.digest
        assert not set(each.history.membership.users()) & set(forgotten)
    assert_same(world, other)
    for each in (world, other):
        each.train(6)
    assert_same(world, other)


@pytest.mark.parametrize("name", ["fru", "fru in steps", "fru at the server", "retrain anew"])
def test_erasures_one_after_another(name, make, reference):
    """The third goes through rounds that only the first has replayed: what waited then must not be lost."""
    method, log = METHODS[name]
    world, other = make(log=log), reference(log=log)
    for each in (world, other):
        each.train(6)
        for round_ in (1, 5, 2):
            in_it = each.history.record(round_).participants or each.history.membership.users()
            each.forget(in_it[:1], method)
        each.train(7)
    assert_same(world, other)


def test_whoever_is_out_of_reach_is_named_and_the_round_goes_on_without(make, reference):
    world, other = make(), reference()
    for each in (world, other):
        each.train(1)
        each.disconnect(101)
        each.train(3)
        each.disconnect()
        each.train(4)
    assert_same(world, other)
    named = {user for round_ in (2, 3) for user in world.history.record(round_).failures}
    assert named
    assert {node_of(user) for user in named} == {101}


@pytest.mark.parametrize("name", ["fru", "fru in steps", "fru at the server", "retrain", "retrain in steps"])
def test_whoever_misses_a_replay_is_left_out_of_it_and_takes_part_again_later(name, make, reference):
    method, log = METHODS[name]
    world, other = make(log=log), reference(log=log)
    for each in (world, other):
        each.train(4)
        leaver = next(user for user in each.history.record(1).participants if node_of(user) != 102)
        each.disconnect(102)
        receipt = each.forget([leaver], method)
        assert 0 < receipt.coverage < 1
        assert sum(receipt.missing.values()) == receipt.asked - receipt.answered
        each.disconnect()
        each.train(6)
    assert_same(world, other)


def test_too_few_answers_leave_everything_as_it_was(make):
    world = make()
    world.train(3)
    before = world.public.digest
    leaver = world.history.record(1).participants[0]
    world.disconnect(*{101, 102, 103} - {node_of(leaver)})
    with pytest.raises(QuorumError, match="updates are missing"):
        world.forget([leaver], ff.FRU(), require=0.9)
    assert world.public.digest == before
    assert leaver in world.history.membership.users()
    world.disconnect()
    world.train(4)
    assert world.history.last_round == 4


def test_evaluation_gives_the_same_means(make, reference):
    world, other = make(), reference()
    for each in (world, other):
        each.train(2)
    mine, theirs = world.measure(), other.measure()
    assert mine["users"] == theirs["users"] == len(USERS)
    for protocol in ("sampled", "full"):
        assert mine[protocol] == pytest.approx(theirs[protocol])
