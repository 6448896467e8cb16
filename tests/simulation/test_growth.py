"""A federation that grows: interactions, users and items that come after its start, and forgetting them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import fedforget as ff
from fedforget.data.growth import grow
from fedforget.runtime.randomness import UserId, item_key

START = ff.synthetic(users=14, items=30, mean_items=8, seed=2)
TRAIN, TEST = START.split(0.2, 0)
OPTIONS: dict[str, Any] = {
    "seed": 3,
    "training": ff.LocalTraining(epochs=2, batch=16, lr=0.01),
    "server": ff.ServerConfig(fraction=0.5, optimiser=ff.Adam(lr=0.05)),
}


def build(train: ff.Interactions = TRAIN, **changes: Any) -> ff.Federation:
    return ff.Federation(train, **{"model": ff.MF(dim=4), **OPTIONS, **changes})


def pairs(*rows: tuple[UserId, int | str]) -> ff.Interactions:
    users, items = zip(*rows, strict=True)
    return ff.Interactions.from_pairs(list(users), list(items))


def unseen(user: int, count: int) -> list[int]:
    """Items of the catalogue that a user does not have, in neither part."""
    own = START.item_ids[START.items_of(START.user_index(user))].tolist()
    return [item for item in START.item_ids.tolist() if item not in own][:count]


MORE = pairs(
    *((user, item) for user in (0, 1, 2) for item in unseen(user, 3)), (100, 4), (100, 900), (101, 901), (3, 900)
)


def from_scratch(
    fed: ff.Federation, events: Sequence[tuple[int, ff.Interactions]], start: ff.Interactions = TRAIN, **changes: Any
) -> ff.Federation:
    """The federation that the members would have made alone, with the same cohorts."""
    members = set(fed.members)
    other = build(start.only([user for user in start.user_ids.tolist() if user in members]), **changes)
    for after, more in [*events, (fed.rounds, None)]:
        cohorts = {r: fed.history.record(r).participants for r in range(other.rounds + 1, after + 1)}
        other.fit(after, cohorts=cohorts)
        if more is not None:
            other.add(more.only([user for user in more.user_ids.tolist() if user in members]))
    return other


def test_additions_count_from_the_next_round_on():
    fed = build().fit(3)
    added = fed.add(MORE)
    assert (set(added.users), set(added.items)) == ({100, 101}, {900, 901})
    assert (added.interactions, added.known, added.since) == (13, 0, 4)
    assert fed.public.items.shape[0] == 30
    fed.fit(9)
    assert fed.public.items.shape[0] == 32
    assert [fed.history.snapshot(r).items.shape[0] for r in (3, 4)] == [30, 32]
    assert not {100, 101} & {user for r in (1, 2, 3) for user in fed.cohort(r)}
    assert {100, 101} & {user for r in range(4, 10) for user in fed.cohort(r)}
    again = fed.add(MORE)
    assert (again.interactions, again.known, len(again.users)) == (0, 13, 0)
    assert "13 interactions were there already" in str(again)


def test_an_added_item_starts_from_its_id_and_learns():
    fed = build(model=ff.IALS(dim=4)).fit(3)
    fed.add(pairs(*((user, 900) for user in range(14))))
    fed.fit(4)
    row = fed.model.init_items(np.array([item_key(900)], np.uint64), 3)[0]
    assert not np.allclose(fed.public.items[30], row)
    fed.fit(40)
    ranks = [item for item, _ in fed.recommend(0, 31)]
    assert 900 not in ranks  # everyone has it


@pytest.mark.parametrize("store", ["packed", "sqlite"])
@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.LightGCN(dim=4), ff.IALS(dim=4)], ids=lambda m: m.name)
def test_a_run_that_is_opened_again_goes_on_as_if_it_had_not_been(tmp_path: Path, model: ff.Recommender, store: str):
    options = {"model": model, "log": ff.Log(store=store), "path": tmp_path / "run", "test": TEST}
    with_stops = build(**options).fit(2)
    with_stops.add(MORE)
    with_stops.close()
    with_stops = ff.Federation.open(tmp_path / "run").fit(4)
    with_stops.add(pairs((0, 950), (200, 5)))
    with_stops.close()
    with_stops = build(**options).fit(7)
    unbroken = build(model=model, test=TEST).fit(2)
    unbroken.add(MORE)
    unbroken.fit(4).add(pairs((0, 950), (200, 5)))
    unbroken.fit(7)
    assert with_stops.public.digest == unbroken.public.digest
    assert with_stops.members == unbroken.members
    assert with_stops.train == unbroken.train
    assert with_stops.test == unbroken.test
    for user in unbroken.members:
        np.testing.assert_array_equal(with_stops.devices.private(user), unbroken.devices.private(user))
    assert with_stops.recommend(200) == unbroken.recommend(200)


@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.IALS(dim=4)], ids=lambda m: m.name)
def test_retrain_after_additions_is_a_federation_that_never_had_the_user(model: ff.Recommender):
    fed = build(model=model).fit(3)
    fed.add(MORE)
    fed.fit(6)
    fed.forget([2, 100], ff.Retrain())
    other = from_scratch(fed, [(3, MORE)], model=model)
    np.testing.assert_allclose(fed.public.items[:30], other.public.items[:30], atol=1e-6)
    assert len(other.public.items) == 32
    assert fed.train.user_ids.tolist() == other.train.user_ids.tolist()


@pytest.mark.parametrize(
    "method",
    [
        ff.FRU(stride=1),
        ff.FRU(stride=4),
        ff.FRU(0.5, replay="logged", stride=1),
        ff.FRU(0.5, replay="logged", stride=4),
    ],
    ids=["fresh", "fresh, steps", "logged", "logged, steps"],
)
def test_logs_of_rounds_before_an_addition_still_decode(method: ff.Method):
    fed = build().fit(3)
    fed.add(MORE)
    fed.fit(6).add(pairs((5, 950)))
    fed.fit(8)
    receipt = fed.forget([fed.cohort(1)[0]], method)
    assert receipt.missing == {}
    assert fed.public.items.shape[0] == 33
    fed.fit(10)


@pytest.mark.parametrize("method", [ff.FedRemove(), ff.FRU(calibration="server")], ids=["fedremove", "server"])
def test_stored_updates_of_rounds_before_an_addition_are_used(method: ff.Method):
    fed = build(log=ff.Log("float32"), server=ff.ServerConfig(fraction=0.5)).fit(3)
    fed.add(MORE)
    fed.fit(6)
    assert fed.forget([fed.cohort(1)[0]], method).missing == {}
    assert fed.public.items.shape[0] == 32


def test_everything_is_trained_anew_on_what_there_is_now():
    fed = build(model=ff.IALS(dim=4)).fit(5)
    fed.add(MORE)
    fed.fit(10)
    fed.forget([1], ff.Retrain(steps=4))
    assert {100, 101} <= set(fed.cohort(2))  # the first of four steps asks everyone
    assert fed.history.snapshot(2).items.shape[0] == 32


# Forgetting what was added, and coming back


def test_a_forgotten_user_comes_back_only_when_readmitted(tmp_path: Path):
    fed = build(path=tmp_path / "run").fit(3)
    before = fed.train.items_of(fed.train.user_index(2)).tolist()
    fed.forget([2])
    fed.close()
    fed = ff.Federation.open(tmp_path / "run")
    with pytest.raises(ff.ConfigError, match=r"1 of the users were forgotten before, such as 2(.|\n)*readmit"):
        fed.add(pairs((2, 5), (2, 900), (7, 901)))
    assert (2 in fed.members, fed.train.n_items) == (False, 30)
    added = fed.add(pairs((2, 5), (2, 900)), readmit=True)
    assert (added.users, added.readmitted) == ([2], 1)
    fed.fit(8)
    assert [fed.train.item_ids[i] for i in fed.train.items_of(fed.train.user_index(2))] == [5, 900]
    assert len(before) > 2
    fed.forget([2])
    assert fed.history.membership.suppressed([2, 3]) == [2]


def test_no_file_has_a_forgotten_users_additions(tmp_path: Path):
    fed = build(train=named(TRAIN), path=tmp_path / "run").fit(2)
    fed.add(named(pairs((1, 900), (55, 901), (55, 902))))
    fed.fit(5)
    fed.forget(["user-55-", "user-1-"])
    fed.close()
    everything = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"user-55-" not in everything
    assert b"user-1-" not in everything
    assert b"user-3-" in everything
    assert ff.Federation.open(tmp_path / "run").members == fed.members


def named(data: ff.Interactions) -> ff.Interactions:
    users, items = data.pairs()
    return ff.Interactions.from_pairs([f"user-{data.user_ids[u]}-" for u in users], data.item_ids[items])


def test_the_source_may_lack_the_forgotten_or_be_gone(tmp_path: Path):
    run = tmp_path / "run"
    build(path=run, test=TEST).fit(2).close()
    without = build(train=TRAIN.without([4]), path=run)
    assert 4 in without.members
    without.forget([4])
    without.close()
    reopened = build(path=run)
    assert 4 not in reopened.members
    assert reopened.evaluate().users.size == 13
    with pytest.warns(UserWarning, match="1 interactions of the data are not in"):
        build(train=grow(TRAIN, pairs((0, unseen(0, 1)[0])), 1)[0], path=run)


# What is refused, and what is lost by a crash


@pytest.mark.parametrize(
    ("more", "error", "problem"),
    [
        (lambda: ff.Interactions.from_pairs(["ann"], [3]), ff.DataError, "user ids to add are text"),
        (lambda: ff.Interactions.from_pairs([1], ["x"]), ff.DataError, "item ids to add are text"),
        (lambda: ff.Interactions.from_pairs([], []), ff.DataError, "no interactions"),
    ],
)
def test_bad_additions_are_refused_and_change_nothing(tmp_path: Path, more, error, problem):
    fed = build(path=tmp_path / "run").fit(1)
    with pytest.raises(error, match=problem):
        fed.add(more())
    assert fed.train == TRAIN
    assert fed.history.membership.additions() == 0


def test_an_addition_that_was_not_recorded_never_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fed = build(path=tmp_path / "run").fit(2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(fed.history), "extend", die)
        with pytest.raises(KeyboardInterrupt):
            fed.add(MORE)
    fed.close()
    fed = ff.Federation.open(tmp_path / "run")
    assert fed.train == TRAIN
    assert fed.add(pairs((0, 970))).interactions == 1
    fed.close()
    fed = ff.Federation.open(tmp_path / "run")
    assert (fed.train.n_items, fed.train.n_users) == (31, 14)


def test_a_damaged_data_file_is_named(tmp_path: Path):
    build(path=tmp_path / "run").close()
    path = tmp_path / "run" / "trajectory-1" / "devices" / "data" / "000000.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ff.RunError, match=r"000000\.safetensors cannot be read"):
        ff.Federation.open(tmp_path / "run")


# Any order of events


def stripped(data: ff.Interactions, user: UserId, items: Sequence[UserId] | None = None) -> ff.Interactions:
    """Interactions without a user, or without some items of a user; the list of items stays the same."""
    if user not in data.user_ids:
        return data
    if items is None:
        return data.without([user])
    return data.without_items({user: [item for item in items if item in data.item_ids]})


class Life(RuleBasedStateMachine):
    """Random events in a run folder and in memory; both must be equal to a federation made from scratch."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp()) / "run"
        self.fed = build(path=self.folder)
        self.begun = TRAIN
        self.events: list[tuple[int, ff.Interactions]] = []
        self.forgotten: set[UserId] = set()
        self.next_user, self.next_item = 300, 1000

    @rule(rounds=st.integers(1, 2))
    def train(self, rounds: int) -> None:
        self.fed.fit(more=rounds)

    @rule(user=st.integers(0, 13), new_item=st.booleans())
    def add_interaction(self, user: int, new_item: bool) -> None:
        if user in self.fed.members:
            self.next_item += new_item
            self._add(pairs((user, self.next_item if new_item else unseen(user, 1)[0])))

    @rule()
    def add_user(self) -> None:
        self.next_user += 1
        self._add(pairs((self.next_user, 3), (self.next_user, 7)))

    def _add(self, more: ff.Interactions, **options: bool) -> None:
        if self.fed.add(more, **options).interactions:
            self.events.append((self.fed.rounds, more))

    @precondition(lambda self: self.forgotten)
    @rule()
    def readmit(self) -> None:
        user = min(self.forgotten)
        with pytest.raises(ff.ConfigError, match="were forgotten before"):
            self.fed.add(pairs((user, 5)))
        self.forgotten.remove(user)
        self._add(pairs((user, 5), (user, 9)), readmit=True)

    @precondition(lambda self: self.fed.train.n_users > 6)
    @rule(place=st.integers(0, 30), killed=st.booleans())
    def forget(self, place: int, killed: bool) -> None:
        user = self.fed.members[place % self.fed.train.n_users]
        self._forget(killed, users=[user])
        self.begun = stripped(self.begun, user)
        self.events = [(after, stripped(more, user)) for after, more in self.events]
        self.forgotten.add(user)

    @rule(place=st.integers(0, 30), killed=st.booleans())
    def forget_items(self, place: int, killed: bool) -> None:
        user = self.fed.members[place % self.fed.train.n_users]
        if user not in self.begun.user_ids:  # one who was added, and may have nothing else
            return
        unwanted = self.fed.train.item_ids_of(user)[1::3]
        if set(self.begun.item_ids_of(user)) <= set(unwanted) or not unwanted:
            return
        self._forget(killed, items={user: unwanted})
        self.begun = stripped(self.begun, user, unwanted)
        self.events = [(after, stripped(more, user, unwanted)) for after, more in self.events]
        assert not set(unwanted) & set(self.fed.train.item_ids_of(user))

    def _forget(self, killed: bool, **what: Any) -> None:
        """Forget by Retrain; if killed, in the first replayed round, the run is opened again and goes on."""

        def die(record: object) -> None:
            raise KeyboardInterrupt

        try:
            self.fed.forget(**what, method=ff.Retrain(), on_round=die if killed else None)
        except KeyboardInterrupt:
            self.reopen()
            self.fed.forget(**what, method=ff.Retrain())

    @rule()
    def reopen(self) -> None:
        self.fed.close()
        self.fed = ff.Federation.open(self.folder)

    @invariant()
    def equal_to_one_from_scratch(self) -> None:
        other = from_scratch(self.fed, self.events, self.begun)
        np.testing.assert_allclose(self.fed.public.items, other.public.items, atol=1e-5)
        assert sorted(self.fed.members) == sorted(other.members)
        assert not self.forgotten & set(self.fed.members)

    def teardown(self) -> None:
        if hasattr(self, "fed"):
            self.fed.close()
            shutil.rmtree(self.folder.parent)


Life.TestCase.settings = settings(max_examples=10, stateful_step_count=8, deadline=None)
TestLife = Life.TestCase
