"""The roster: who is drawn depends on seed, round and the user's own lot, and on who has joined."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import ConfigError
from fedforget.runtime import randomness
from fedforget.server.roster import Roster

USERS = [f"user {number}" for number in range(40)]


def lot_order(roster: Roster, round_: int, seed: int = 0) -> list:
    """The users in the order of their lots, seen from outside: who joins the cohort as it grows by one."""
    n = len(roster.users)
    cohorts = [set(), *(set(roster.cohort(round_, size / n, seed)) for size in range(1, n + 1))]
    for smaller, larger in pairwise(cohorts):
        assert smaller < larger
    return [next(iter(larger - smaller)) for smaller, larger in pairwise(cohorts)]


@pytest.mark.parametrize(
    ("n", "fraction", "size"), [(40, 0.1, 4), (40, 1.0, 40), (40, 0.001, 1), (1, 0.1, 1), (25, 0.1, 3), (24, 0.1, 2)]
)
def test_a_cohort_is_a_rounded_share_and_never_empty(n, fraction, size):
    roster = Roster(USERS[:n])
    for round_ in range(1, 30):
        cohort = roster.cohort(round_, fraction, seed=0)
        assert len(cohort) == len(set(cohort)) == size
        assert set(cohort) <= set(USERS[:n])


def test_a_cohort_comes_in_the_order_of_the_roster():
    cohort = Roster(USERS).cohort(3, 0.5, seed=0)
    assert cohort == [user for user in USERS if user in cohort]


def test_a_cohort_is_fixed_by_seed_and_round():
    def cohorts(seed: int) -> list:
        return [tuple(Roster(USERS).cohort(round_, 0.2, seed)) for round_ in range(1, 20)]

    assert cohorts(1) == cohorts(1)
    assert len(set(cohorts(1))) == 19
    assert not set(cohorts(1)) & set(cohorts(2))


def test_the_winners_are_those_with_the_lowest_lots_however_few_or_many():
    for n in (3, 20, 400):
        roster = Roster(list(range(n)))
        for round_, fraction in enumerate([0.01, 0.1, 0.5, 1.0] * 8, start=1):
            lots = randomness.priorities(5, randomness.COHORT, round_, roster.keys)
            size = max(1, int(fraction * n + 0.5))
            assert roster.cohort(round_, fraction, seed=5) == np.sort(np.argsort(lots)[:size]).tolist()


@given(st.sets(st.sampled_from(USERS), min_size=1), st.integers(1, 1000))
def test_removing_users_never_changes_the_order_of_the_others(remaining, round_):
    order = lot_order(Roster(USERS), round_)
    left = [user for user in USERS if user in remaining]
    assert lot_order(Roster(left), round_) == [user for user in order if user in remaining]


def test_the_order_of_the_list_does_not_matter():
    assert lot_order(Roster(USERS[::-1]), 3) == lot_order(Roster(USERS), 3)


def test_a_late_joiner_is_drawn_from_its_round_on_and_not_before():
    roster = Roster(USERS, {"user 5": 4, "user 6": 9})
    present = {round_: set(roster.cohort(round_, 1.0, seed=0)) for round_ in range(1, 12)}
    assert [round_ for round_ in present if "user 5" in present[round_]] == list(range(4, 12))
    assert [round_ for round_ in present if "user 6" in present[round_]] == list(range(9, 12))
    assert all(set(USERS) - {"user 5", "user 6"} <= cohort for cohort in present.values())


def test_those_who_have_not_joined_do_not_count_towards_the_share():
    roster = Roster(USERS, dict.fromkeys(USERS[10:], 5))
    assert [len(roster.cohort(round_, 0.2, seed=0)) for round_ in (4, 5)] == [2, 8]
    assert set(roster.cohort(4, 1.0, seed=0)) == set(USERS[:10])
    assert Roster(USERS, dict.fromkeys(USERS, 3)).cohort(2, 0.5, seed=0) == []


def test_joining_late_changes_nobody_elses_lot():
    late = Roster(USERS, {"user 5": 4})
    order = lot_order(Roster(USERS), 2)
    cohort = late.cohort(2, 20 / 39, seed=0)
    assert set(cohort) == set([user for user in order if user != "user 5"][:20])


def test_a_joining_user_must_be_in_the_data_and_join_in_some_round():
    with pytest.raises(ConfigError, match="'5'"):
        Roster([1, 5], {"5": 3})
    with pytest.raises(ConfigError, match="5 is to join in round 0"):
        Roster([1, 5], {5: 0})


def test_everyone_is_drawn_about_equally_often_and_unrelated_to_the_round_before():
    roster = Roster(USERS)
    drawn = np.array([np.isin(USERS, roster.cohort(round_, 0.25, seed=0)) for round_ in range(1, 401)])
    deviation = np.sqrt(400 * 0.25 * 0.75)
    assert (np.abs(drawn.sum(0) - 100) < 4.5 * deviation).all()
    assert drawn.sum(0).std() < 1.6 * deviation
    again = (drawn[1:] & drawn[:-1]).sum() / drawn[:-1].sum()
    assert abs(again - 0.25) < 0.04
