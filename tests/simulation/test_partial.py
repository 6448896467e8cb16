"""Erasing part of a history: the user stays, some interactions never were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff

START = ff.synthetic(users=14, items=30, mean_items=9, seed=2)
TRAIN, TEST = START.split(0.2, 0)
USER = 3
OPTIONS: dict[str, Any] = {
    "seed": 3,
    "training": ff.LocalTraining(epochs=4, batch=16, lr=0.01),
    "server": ff.ServerConfig(fraction=0.5),
}


def build(train: ff.Interactions = TRAIN, **changes: Any) -> ff.Federation:
    return ff.Federation(train, **{"model": ff.MF(dim=4), "test": TEST, **OPTIONS, **changes})


def own(data: ff.Interactions, user: int = USER) -> list[int]:
    return data.item_ids[data.items_of(data.user_index(user))].tolist()


ITEMS = own(TRAIN)[:2]


def cohorts(fed: ff.Federation) -> dict[int, Any]:
    return {round_: fed.cohort(round_) for round_ in range(1, fed.rounds + 1)}


@pytest.mark.parametrize("model", [ff.MF(dim=4), ff.LightGCN(dim=4), ff.IALS(dim=4)], ids=lambda m: m.name)
def test_retrain_is_a_federation_in_which_they_never_were(model: ff.Recommender):
    fed = build(model=model).fit(6)
    receipt = fed.forget(user=USER, items=ITEMS, method=ff.Retrain())
    other = build(TRAIN.without_items({USER: ITEMS}), model=model).fit(6, cohorts=cohorts(fed))
    np.testing.assert_allclose(fed.public.items, other.public.items, atol=1e-6)
    assert USER in fed.members
    assert own(fed.train) == own(TRAIN)[2:]
    assert (len(receipt.users), list(receipt.partial.values())) == (0, [2])
    assert receipt.names(USER)
    assert "2 interactions of 1 users who stay" in str(receipt)
    for item in ITEMS:
        assert item in [found for found, _ in fed.recommend(USER, 30)]


@pytest.mark.parametrize(
    "method",
    [
        ff.FRU(0.5, stride=1),
        ff.FRU(0.5, stride=3),
        ff.FRU(0.5, replay="logged", stride=1),
        ff.FRU(0.5, replay="logged", stride=3),
    ],
    ids=["fresh", "steps", "logged", "logged steps"],
)
def test_fru_replays_from_the_first_round_with_them(method: ff.Method):
    fed = build().fit(8)
    first = min(round_ for round_ in range(1, 9) if USER in fed.cohort(round_))
    before = [fed.history.snapshot(round_).digest for round_ in range(first)]
    receipt = fed.forget(user=USER, items=ITEMS, method=method)
    assert receipt.missing == {}
    assert receipt.first_round == first
    assert [fed.history.snapshot(round_).digest for round_ in range(first)] == before
    assert receipt.digest_before != receipt.digest_after
    assert not fed.forget([fed.cohort(1)[0]], method).missing  # the new log decodes again
    fed.fit(10)


def test_added_items_are_forgotten_from_the_round_they_came():
    fed = build().fit(3)
    new = [item for item in START.item_ids.tolist() if item not in own(START)][:2]
    fed.add(ff.Interactions.from_pairs([USER] * 3, [*new, 900]))
    fed.fit(8)
    first = min(round_ for round_ in range(4, 9) if USER in fed.cohort(round_))
    receipt = fed.forget(user=USER, items=[*new, 900], method=ff.Retrain())
    assert receipt.first_round == first
    assert own(fed.train) == own(TRAIN)


def test_items_for_testing_alone_are_removed_without_a_replay():
    fed = build().fit(3)
    held_out = own(TEST)
    receipt = fed.forget(user=USER, items=held_out)
    assert (receipt.rounds_replayed, receipt.digest_before) == (0, receipt.digest_after)
    assert own(fed.test) == []


def test_whole_and_partial_requests_are_one_replay():
    fed = build().fit(6)
    receipt = fed.forget([7], items={USER: ITEMS, 5: own(TRAIN, 5)[:1]}, method=ff.Retrain())
    without = TRAIN.without([7]).without_items({USER: ITEMS, 5: own(TRAIN, 5)[:1]})
    other = build(without, test=None).fit(6, cohorts=cohorts(fed))
    np.testing.assert_allclose(fed.public.items, other.public.items, atol=1e-6)
    assert (len(receipt.users), sum(receipt.partial.values())) == (1, 3)


@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_it_survives_a_stop_and_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str):
    def named(data: ff.Interactions) -> ff.Interactions:
        users, items = data.pairs()
        return ff.Interactions.from_pairs(data.user_ids[users], [f"item-{data.item_ids[i]}-" for i in items])

    data = named(TRAIN)
    secret = "the-secret-item"
    fed, unbroken = (
        ff.Federation(data, path=tmp_path / name, log=ff.Log(store=store), model=ff.MF(dim=4), **OPTIONS).fit(2)
        for name in ("run", "unbroken")
    )
    for each in (fed, unbroken):
        each.add(ff.Interactions.from_pairs([USER], [secret]))
        each.fit(8)
    items = [data.item_ids[data.items_of(data.user_index(USER))].tolist()[0], secret]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ff.FRU, "step", die)
        with pytest.raises(KeyboardInterrupt):
            fed.forget(user=USER, items=items)
    fed.close()
    fed = ff.Federation.open(tmp_path / "run")
    with pytest.raises(ff.RunError, match="not finished"):
        fed.fit(9)
    with pytest.raises(ff.RunError, match="Another request"):
        fed.forget(user=USER, items=items[:1])
    fed.forget(user=USER, items=items)
    unbroken.forget(user=USER, items=items)
    assert fed.public.digest == unbroken.public.digest
    fed.close()
    for path in (tmp_path / "run" / "trajectory-2" / "devices").rglob("*"):
        assert not path.is_file() or b"the-secret" not in path.read_bytes() or path.name == "items.json"
    reopened = ff.Federation.open(tmp_path / "run")
    assert secret not in own(reopened.train)
    assert not (tmp_path / "run" / "request.json").exists()
    assert reopened.fit(10).public.digest == unbroken.fit(10).public.digest


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"user": USER, "items": []}, "No items of user 3"),
        ({"user": USER, "items": [999]}, "no item 999"),
        ({"user": 999, "items": [1]}, "no user 999"),
        ({"user": USER, "items": own(TRAIN)}, "no interactions left(.|\n)*as a whole"),
        ({"users": [USER], "items": {USER: ITEMS}}, "as a whole and for some items"),
        ({"user": USER}, "user and items together"),
        ({"items": ITEMS}, "user and items together"),
        ({"user": 1, "items": {USER: ITEMS}}, "items by user"),
        ({"user": USER, "items": ITEMS, "method": ff.FedRemove()}, "logged updates|whole updates"),
    ],
)
def test_what_cannot_be_forgotten_is_refused(arguments: dict[str, Any], problem: str):
    fed = build().fit(3)
    before = fed.public.digest
    with pytest.raises(ff.FedForgetError, match=problem):
        fed.forget(**arguments)
    assert (fed.public.digest, own(fed.train)) == (before, own(TRAIN))


def test_an_item_that_the_user_does_not_have_is_named():
    other = next(item for item in START.item_ids.tolist() if item not in own(START))
    with pytest.raises(ff.ConfigError, match=f"User 3 does not have item {other}"):
        build().fit(1).forget(user=USER, items=[other])
