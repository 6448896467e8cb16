"""Growth: additions keep indices, count what is new, and say from which round they count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interaction_pairs import pairs_of

from fedforget.data import Interactions
from fedforget.data.growth import grow
from fedforget.errors import DataError

PAIRS = st.sets(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1)


def built(pairs) -> Interactions:
    users, items = zip(*sorted(pairs), strict=True)
    return Interactions.from_pairs(list(users), list(items))


@given(PAIRS, st.lists(PAIRS, max_size=3))
def test_what_has_grown_holds_everything_from_its_round_on(first, additions):
    data, known = built(first), dict.fromkeys(first, 0)
    for round_, more in enumerate(additions, start=5):
        before = data
        data, added = grow(data, built(more), round_)
        assert data.user_ids[: before.n_users].tolist() == before.user_ids.tolist()
        assert data.item_ids[: before.n_items].tolist() == before.item_ids.tolist()
        assert set(added.users) == {u for u, _ in more} - {u for u, _ in known}
        assert set(added.items) == {i for _, i in more} - {i for _, i in known}
        assert (added.interactions, added.known) == (len(more - known.keys()), len(more & known.keys()))
        known |= dict.fromkeys(more - known.keys(), round_)
        for part in range(before.n_users):
            assert before.user_index(before.user_ids[part].item()) == part
    assert pairs_of(data) == set(known)
    fresh = Interactions(data.user_ids, data.item_ids, data.indptr, data.indices)
    np.testing.assert_array_equal(data.user_keys, fresh.user_keys)
    for user in range(data.n_users):
        assert data.user_index(data.user_ids[user].item()) == user
        assert (np.diff(data.items_of(user)) > 0).all()
    for round_ in (0, 5, 6, 9):
        counted = {pair for pair, since in known.items() if since <= round_}
        assert pairs_of(data.at(round_)) == counted
        ptr, items = data.rows(np.arange(data.n_users), round_)
        assert {
            (data.user_ids[u], data.item_ids[i])
            for u, i in zip(np.repeat(np.arange(data.n_users), np.diff(ptr)), items, strict=True)
        } == counted


def test_two_growths_of_the_same_data_do_not_disturb_each_other():
    data = built([(1, 1), (2, 2)])
    one, _ = grow(data, built([(3, 1)]), 2)
    other, _ = grow(data, built([(4, 1), (5, 9)]), 2)
    assert (one.user_index(3), other.user_index(4), other.user_index(5)) == (2, 2, 3)
    for part, unknown in ((data, 3), (one, 4), (other, 3)):
        with pytest.raises(DataError, match="no user"):
            part.user_index(unknown)


def test_ids_of_another_type_are_refused():
    with pytest.raises(DataError, match="user ids to add are text, such as 'ann'; those of the federation are numbers"):
        grow(built([(1, 1)]), Interactions.from_pairs(["ann"], [1]), 2)


def test_items_of_some_users_are_taken_out():
    data, _ = grow(built([(1, 1), (1, 2), (2, 1)]), built([(1, 5)]), 3)
    left = data.without_items({1: [1, 5]})
    assert pairs_of(left) == {(1, 2), (2, 1)}
    assert left.since.tolist() == [0, 0]
