"""Cover: sums before and after an erasure differ by at least so many users, whoever is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedforget.server.unlearning.cover import Cover

USERS = [f"user-{number}" for number in range(30)]
SOME = st.sets(st.sampled_from(USERS), min_size=1, max_size=12)


@given(st.lists(st.sampled_from(USERS), min_size=12, unique=True), SOME, SOME, st.integers(3, 10), st.integers(0, 9))
def test_two_sums_over_the_same_parameters_differ_by_enough_users(participants, gone, changed, minimum, trajectory):
    cover = Cover(gone, gone | changed, minimum, 0, trajectory)
    remaining = cover.remaining(participants)
    affected = (gone | changed).intersection(participants)
    differ = set(participants).difference(remaining) | affected
    assert gone.isdisjoint(remaining)
    assert [user for user in participants if user in remaining] == remaining
    assert len(differ) >= min(minimum, len(participants)) if affected else differ == set()
    assert changed.difference(gone).intersection(participants) <= set(remaining)


def test_the_same_users_are_left_out_of_all_rounds_and_others_of_the_next_erasure():
    first, second = (Cover({USERS[0]}, {USERS[0]}, 5, 0, trajectory) for trajectory in (1, 2))
    left_out = set(USERS[1:]).difference(first.remaining(USERS))
    assert len(left_out) == 4
    half = [USERS[0], *sorted(left_out), *[user for user in USERS[1:] if user not in left_out][:10]]
    assert set(half[1:]).difference(first.remaining(half)) == left_out
    assert first.drawn(USERS[1:], USERS[1:]) == first.remaining(USERS)
    assert second.remaining(USERS) != first.remaining(USERS)


def test_with_plain_updates_and_in_rounds_without_forgotten_users_nobody_is_left_out():
    assert Cover({USERS[0]}, {USERS[0]}, 0, 0, 1).remaining(USERS) == USERS[1:]
    assert Cover({USERS[0]}, {USERS[0]}, 10, 0, 1).remaining(USERS[1:]) == USERS[1:]
    many = set(USERS[:12])
    assert Cover(many, many, 10, 0, 1).remaining(USERS) == USERS[12:]
