"""Aggregation against the formulas written out, and the screening of updates that cannot be used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import MissingComponentError
from fedforget.protocol import reasons
from fedforget.protocol.updates import Updates
from fedforget.server.aggregation import AGGREGATIONS, Mean, Root, Touched, Weighted, screen
from fedforget.server.optimiser import SGD
from fedforget.server.state import ServerState
from tests.server.made_updates import DENSE, DIM, N_ITEMS, any_updates, public_part, updates_of

SOUND = {"ann": {0: [1.0, 2.0], 5: [3.0, 4.0]}, "bob": {3: [5.0, 6.0]}, "cid": {}}


def as_dense(updates: Updates) -> tuple[np.ndarray, np.ndarray]:
    """Every client's update as a whole item table, in float64, and which rows it touched."""
    tables = np.zeros((len(updates), N_ITEMS, DIM))
    touched = np.zeros((len(updates), N_ITEMS), bool)
    for client in range(len(updates)):
        for place in range(updates.ptr[client], updates.ptr[client + 1]):
            tables[client, updates.items[place]] = updates.rows[place]
            touched[client, updates.items[place]] = True
    return tables, touched


@given(any_updates())
def test_mean_counts_an_untouched_row_as_zero(updates):
    step = Mean().combine(updates, public_part())
    assert np.allclose(step.items, as_dense(updates)[0].mean(0), atol=1e-5)
    assert np.allclose(step.dense, updates.dense.astype(np.float64).mean(0), atol=1e-5)


@given(any_updates())
def test_touched_is_the_mean_over_those_who_touched_the_row(updates):
    tables, touched = as_dense(updates)
    step = Touched().combine(updates, public_part())
    for item in range(N_ITEMS):
        mine = tables[touched[:, item], item]
        assert np.allclose(step.items[item], mine.mean(0) if len(mine) else 0.0, atol=1e-5)
    assert np.allclose(step.dense, updates.dense.astype(np.float64).mean(0), atol=1e-5)


@given(any_updates())
def test_root_is_the_sum_over_the_root_of_those_who_touched_the_row(updates):
    tables, touched = as_dense(updates)
    step = Root().combine(updates, public_part())
    for item in range(N_ITEMS):
        mine = tables[touched[:, item], item]
        assert np.allclose(step.items[item], mine.sum(0) / np.sqrt(max(len(mine), 1)), atol=1e-4)
    assert np.allclose(step.dense, updates.dense.astype(np.float64).mean(0), atol=1e-5)


@given(any_updates())
def test_weighted_counts_each_client_by_its_interactions(updates):
    shares = updates.sizes / updates.sizes.sum()
    step = Weighted().combine(updates, public_part())
    assert np.allclose(step.items, np.tensordot(shares, as_dense(updates)[0], 1), atol=1e-5)
    assert np.allclose(step.dense, shares @ updates.dense.astype(np.float64), atol=1e-5)


@given(any_updates(), st.sampled_from(["mean", "weighted"]))
def test_sums_run_client_after_client_to_the_last_bit(updates, rule):
    sizes = np.ones(len(updates)) if rule == "mean" else updates.sizes.astype(float)
    weights = (sizes / sizes.sum()).astype(np.float32)
    items, dense = np.zeros((N_ITEMS, DIM), np.float32), np.zeros(DENSE, np.float32)
    for client, weight in enumerate(weights):
        for place in range(updates.ptr[client], updates.ptr[client + 1]):
            items[updates.items[place]] += weight * updates.rows[place]
        dense += weight * updates.dense[client]
    step = AGGREGATIONS.build(rule).combine(updates, public_part())
    assert step.items.tobytes() == items.tobytes()
    assert step.dense.tobytes() == dense.tobytes()


@given(any_updates(), st.sampled_from(list(AGGREGATIONS)))
def test_plain_averaging_adds_the_step_and_changes_nothing_passed_in(updates, rule):
    public = public_part(0.5)
    before, rows = public.digest, updates.rows.copy()
    step = AGGREGATIONS.build(rule).combine(updates, public)
    after = SGD().apply(ServerState(public), step, 1).public
    assert np.array_equal(after.items, np.float32(0.5) + step.items)
    assert np.array_equal(after.dense, np.float32(0.5) + step.dense)
    assert public.digest == before
    assert np.array_equal(updates.rows, rows)


def test_an_unknown_rule_is_named_and_the_closest_one_suggested():
    with pytest.raises(MissingComponentError, match=r"'weigthed'(.|\n)*mean 'weighted'"):
        AGGREGATIONS.build("weigthed")


@given(any_updates(min_clients=0))
def test_sound_updates_pass(updates):
    assert screen(updates, public_part(), DENSE) == {}


def test_the_largest_finite_numbers_pass():
    largest = float(np.finfo(np.float32).max)
    updates = updates_of({1: {0: [largest, -largest], 1: [largest, 1e-45]}}, [[largest, -largest, largest]])
    assert screen(updates, public_part(), DENSE) == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (1, 1), (2, 0)])
def test_a_number_that_is_none_in_a_row_is_refused_with_the_name_of_its_user(value, place):
    updates = updates_of(SOUND)
    updates.rows[place] = value
    user = "ann" if place[0] < 2 else "bob"
    assert screen(updates, public_part(), DENSE) == {user: reasons.NOT_FINITE}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_in_the_other_tensors_is_refused(value):
    updates = updates_of(SOUND)
    updates.dense[2, 1] = value
    assert screen(updates, public_part(), DENSE) == {"cid": reasons.NOT_FINITE}


@pytest.mark.parametrize("item", [-1, N_ITEMS, 2**31 - 1, -(2**31)])
def test_an_item_that_does_not_exist_is_refused(item):
    updates = updates_of(SOUND)
    updates.items[1] = item
    assert screen(updates, public_part(), DENSE) == {"ann": reasons.UNKNOWN_ITEM}


def test_an_item_named_twice_is_refused_but_not_one_that_two_clients_name():
    updates = updates_of({"ann": {0: [1, 1], 1: [1, 1]}, "bob": {0: [1, 1]}, "cid": {0: [1, 1], 4: [1, 1]}})
    updates.items[4] = 0
    assert screen(updates, public_part(), DENSE) == {"cid": reasons.REPEATED_ITEM}


def test_everyone_at_fault_is_named_with_a_reason():
    updates = updates_of({user: {0: [1, 1], 1: [1, 1]} for user in "abcd"})
    updates.items[[0, 3]] = -1, 0
    updates.rows[5] = np.nan
    refused = screen(updates, public_part(), DENSE)
    assert list(refused) == ["a", "b", "c"]
    assert len(set(refused.values())) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.zeros((3, DIM + 1), np.float32)},
        {"rows": np.zeros((2, DIM), np.float32)},
        {"rows": np.zeros((4, DIM), np.float32)},
        {"dense": np.zeros((3, DENSE + 1), np.float32)},
        {"dense": np.zeros((3, 0), np.float32)},
        {"dense": np.zeros((2, DENSE), np.float32)},
        {"items": np.zeros(2, np.int32)},
        {"ptr": np.array([0, 2, 3])},
        {"ptr": np.array([0, 2, 3, 4])},
        {"ptr": np.array([1, 2, 3, 3])},
        {"ptr": np.array([0, 1000, 3, 3])},
        {"ptr": np.array([0, -5, 3, 3])},
        {"sizes": np.ones(2, np.int64)},
        {"losses": np.ones(4, np.float32)},
    ],
    ids=str,
)
def test_updates_whose_parts_do_not_fit_are_refused_whole(change):
    refused = screen(replace(updates_of(SOUND), **change), public_part(), DENSE)
    assert refused == dict.fromkeys(SOUND, reasons.WRONG_SHAPE)


@given(any_updates(), st.data())
def test_some_of_the_updates_are_those_of_the_users_kept(updates, data):
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(updates), max_size=len(updates))), bool)
    some = updates.only(keep)
    assert list(some.users) == [user for user, kept in zip(updates.users, keep, strict=True) if kept]
    tables, touched = as_dense(updates)
    assert np.array_equal(as_dense(some)[0], tables[keep])
    assert np.array_equal(as_dense(some)[1], touched[keep])
    for part in ("dense", "sizes", "losses"):
        assert np.array_equal(getattr(some, part), getattr(updates, part)[keep])
    assert screen(some, public_part(), DENSE) == {}


@pytest.mark.parametrize("size", [0, -5, N_ITEMS + 1, 2**62])
def test_a_number_of_interactions_that_cannot_be_is_refused(size):
    updates = updates_of({"a": {0: [1, 1]}, "b": {1: [1, 1]}}, sizes=[1, size])
    assert screen(updates, public_part(), DENSE, counts=True) == {"b": reasons.WRONG_COUNT}
    assert screen(updates, public_part(), DENSE) == {}  # a rule that does not need it does not look at it


@pytest.mark.parametrize("part", ["rows", "dense", "losses", "items", "ptr", "sizes"])
@pytest.mark.parametrize("kind", [np.float64, object])
def test_numbers_of_another_type_are_refused(part, kind):
    updates = updates_of({"a": {0: [1, 1]}, "b": {1: [1, 1]}})
    wrong = replace(updates, **{part: getattr(updates, part).astype(kind)})
    assert screen(wrong, public_part(), DENSE) == dict.fromkeys("ab", reasons.WRONG_SHAPE)
