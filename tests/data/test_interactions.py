"""Interactions: built, split and reduced, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interaction_pairs import pairs_of

from fedforget.data import Interactions
from fedforget.errors import DataError

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 9)
NAMES = st.text(min_size=1, max_size=6).filter(lambda name: name.strip())
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1) | st.lists(st.tuples(NAMES, NAMES), min_size=1)


def built(pairs):
    columns = [np.array(column, object) for column in zip(*pairs, strict=True)]
    return Interactions.from_pairs(*columns)


@given(PAIRS)
def test_pairs_in_are_pairs_out(pairs):
    data = built(pairs)
    assert pairs_of(data) == set(pairs)
    assert len(data) == len(set(pairs))
    assert data.duplicates == len(pairs) - len(set(pairs))
    assert data.user_ids.tolist() == sorted({user for user, _ in pairs})
    assert data.item_ids.tolist() == sorted({item for _, item in pairs})
    for user in range(data.n_users):
        assert (np.diff(data.items_of(user)) > 0).all()


@given(PAIRS, st.randoms())
def test_neither_order_nor_repeats_matter(pairs, random):
    again = pairs + pairs[:2]
    random.shuffle(again)
    assert built(again) == built(pairs)
    assert hash(built(again)) == hash(built(pairs))


@given(PAIRS)
def test_ids_lead_to_indices_and_back(pairs):
    data = built(pairs)
    for user, item in pairs:
        assert data.user_ids[data.user_index(user)] == user
        assert data.item_index(item) in data.items_of(data.user_index(user))


def test_a_number_and_its_digits_are_different_data():
    assert Interactions.from_pairs([1], [2]) != Interactions.from_pairs(["1"], ["2"])
    assert Interactions.from_pairs([1], [2]) != "something else"


def test_its_arrays_cannot_be_changed():
    data = Interactions.from_pairs([1, 2], [3, 4])
    with pytest.raises(ValueError, match="read-only"):
        data.indices[0] = 1


def test_it_shows_its_size():
    assert repr(Interactions.from_pairs([1, 1], [3, 4])) == "Interactions(1 users, 2 items, 2 interactions)"


@pytest.mark.parametrize(
    ("users", "problem"),
    [
        ([1, float("nan")], "Row 2 of the pairs: user id nan is not a number"),
        ([1, float("inf")], "Row 2 of the pairs: user id inf is not a number"),
        ([1, 2.5], "Row 2 of the pairs: user id 2.5 is not a whole number"),
        ([1, 2.0**60], "Row 2 of the pairs: user id 1.15.* is too large to be exact"),
        ([1, -3], "Row 2 of the pairs: user id -3 is negative"),
        ([1, 2**64], f"Row 2 of the pairs: user id {2**64} does not fit 64 bits"),
        (np.array([1, 2**63], np.uint64), f"Row 2 of the pairs: user id {2**63} does not fit 64 bits"),
        (np.array([1, None], object), "Row 2 of the pairs: user id None is neither a number nor a string"),
        (np.array(["a", " "], object), "Row 2 of the pairs: user id ' ' is neither a number nor a string"),
        (np.array(["a", 3], object), "Row 2 of the pairs: user id 3 is a number among strings"),
        ([True, False], "user ids of the pairs are bool"),
        ([[1, 2]], "have 2 dimensions"),
        ([1, 2, 3], "the pairs has 3 users but 2 items"),
        (np.array(["2024-01-01", "2024-01-02"], "M8[D]"), "user ids of the pairs are datetime64"),
    ],
)
def test_bad_ids_are_refused_by_row(users, problem):
    with pytest.raises(DataError, match=problem) as error:
        Interactions.from_pairs(users, [1, 2])
    assert error.value.hint


def test_no_pairs_at_all_are_refused():
    with pytest.raises(DataError, match="contains no interactions"):
        Interactions.from_pairs([], [])


@pytest.mark.parametrize("wanted", [4, -1, 10**30, "1", None, True])
def test_an_unknown_user_is_named(wanted):
    data = Interactions.from_pairs([0, 1, 2], [5, 6, 7])
    with pytest.raises(DataError, match="There is no user") as error:
        data.user_index(wanted)
    assert "3 user ids start 0, 1, 2" in error.value.hint


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), min_size=1), st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_split_is_a_partition(pairs, share, seed):
    data = built(pairs)
    train, test = data.split(share, seed)
    assert pairs_of(train) | pairs_of(test) == pairs_of(data)
    assert not pairs_of(train) & pairs_of(test)
    assert (train.counts + test.counts == data.counts).all()
    assert train.user_ids is data.user_ids
    assert test.item_ids is data.item_ids
    for n, n_test in zip(data.counts.tolist(), test.counts.tolist(), strict=True):
        assert n_test == (0 if n == 1 else min(n - 1, max(1, int(share * n + 0.5))))


def test_a_split_follows_its_seed():
    data = built([(user, item) for user in range(20) for item in range(20)])
    assert data.split(seed=3) == data.split(seed=3)
    assert data.split(seed=3)[1] != data.split(seed=4)[1]


def test_a_split_gives_every_item_its_chance():
    data = built([(user, item) for user in range(2000) for item in range(5)])
    per_item = np.bincount(data.split(0.2)[1].indices, minlength=5)
    assert per_item.sum() == 2000
    assert (abs(per_item - 400) < 5 * np.sqrt(2000 * 0.2 * 0.8)).all()


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), min_size=1), st.integers(0, 9))
def test_a_users_split_does_not_depend_on_the_others(pairs, seed):
    data = built(pairs)
    some = [user for user in data.user_ids.tolist() if user % 2]
    kept = data.without(some)
    alone = kept.split(seed=seed)[1]
    assert pairs_of(alone) == {pair for pair in pairs_of(data.split(seed=seed)[1]) if pair[0] not in some}


@pytest.mark.parametrize("share", [1, -0.5, float("nan")])
def test_a_split_needs_a_share(share):
    with pytest.raises(DataError, match="test share is"):
        built([(1, 2)]).split(share)


def test_without_a_test_share_everything_is_for_training():
    data = built([(1, 2), (1, 3), (2, 3)])
    train, test = data.split(0)
    assert train == data
    assert len(test) == 0
    assert test.n_users == 2


def test_a_split_by_time_tests_on_the_latest():
    data = Interactions.from_pairs([1, 1, 1, 1, 1, 2, 1], [5, 6, 7, 8, 9, 5, 5], [9, 1, 8, 2, 3, 4, 2])
    train, test = data.split(0.4, by="time")
    assert pairs_of(test) == {(1, 5), (1, 7)}
    assert pairs_of(train) == {(1, 6), (1, 8), (1, 9), (2, 5)}
    with pytest.raises(DataError, match="no times to split by"):
        built([(1, 2)]).split(by="time")
    with pytest.raises(DataError, match="by 'size' is not known"):
        data.split(by="size")


def test_without_drops_users_and_keeps_items():
    data = built([("ann", "x"), ("ann", "y"), ("bob", "y"), ("cleo", "z")])
    left = data.without(["ann", "cleo"])
    assert pairs_of(left) == {("bob", "y")}
    assert left.item_ids.tolist() == ["x", "y", "z"]
    assert data.without([]) == data
    assert len(data.without(["ann", "bob", "cleo"])) == 0
    with pytest.raises(DataError, match="no user 'dan'"):
        data.without(["dan"])


def test_a_longer_item_list_changes_no_interaction():
    data = built([(1, 5), (2, 9)])
    wider = data.with_items(range(12))
    assert pairs_of(wider) == {(1, 5), (2, 9)}
    assert wider.n_items == 12
    with pytest.raises(DataError, match="Item 9 is not in the list of 6 items"):
        data.with_items(range(6))


def test_user_keys_follow_the_id_alone():
    small, large = built([(7, 1)]), built([(3, 1), (7, 1), (9, 4)])
    assert small.user_keys[0] == large.user_keys[1]
    assert len(set(large.user_keys.tolist())) == 3
