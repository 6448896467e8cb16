"""Which rows of an update the log keeps: the longest, a keyed choice, or all, but of every update at least one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.device.log.row_selection import select
from fedforget.protocol.log import Log

COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=5)
ALPHAS = st.floats(0.01, 1.0)


def chosen(log: Log, lengths: list[list[float]], keys: list[int] | None = None, seed=0, round_=1) -> list[list[int]]:
    """For each client the places of the rows that are kept."""
    ptr = np.concatenate([[0], np.cumsum([len(client) for client in lengths])]).astype(np.int64)
    flat = np.array([length for client in lengths for length in client], np.float32)
    names = np.array(keys or range(len(lengths)), np.uint64)
    kept = select(log, ptr, flat, names, seed, round_)
    assert kept.shape == flat.shape
    return [np.flatnonzero(kept[start:end]).tolist() for start, end in pairwise(ptr.tolist())]


def test_by_importance_the_longest_rows_are_kept():
    lengths = [[1, 5, 3, 4], [0.5, 0.25, 9, 8, 7, 6], [2, 1]]
    assert chosen(Log("float32", "importance", 0.5), lengths) == [[1, 3], [2, 3, 4], [0]]


def test_among_rows_of_one_length_the_first_are_kept():
    assert chosen(Log("float32", "importance", 0.5), [[1, 1, 1, 1], [0, 0]]) == [[0, 1], [0]]


@pytest.mark.parametrize("selection", ["importance", "random"])
def test_at_least_one_row_is_kept_and_of_nothing_nothing(selection):
    kept = chosen(Log("float32", selection, 0.01), [[3.0], [1, 2, 3], []])
    assert [len(client) for client in kept] == [1, 1, 0]


@pytest.mark.parametrize("selection", ["importance", "random"])
@given(counts=COUNTS, alpha=ALPHAS, seed=st.integers(0, 99))
def test_the_share_of_every_update_is_kept(selection, counts, alpha, seed):
    lengths = np.random.default_rng(seed).random(sum(counts)).astype(np.float32)
    clients = [part.tolist() for part in np.split(lengths, np.cumsum(counts)[:-1])]
    kept = chosen(Log("float32", selection, alpha), clients, seed=seed)
    for rows, places in zip(clients, kept, strict=True):
        assert abs(len(places) - alpha * len(rows)) <= 0.5 + 1e-9 or len(places) == 1
        assert len(places) >= bool(rows)
        if selection == "importance" and rows:
            assert min(rows[place] for place in places) >= max(np.delete(rows, places), default=0)


@given(COUNTS, ALPHAS)
def test_all_means_all_whatever_alpha_says(counts, alpha):
    lengths = [[0.0] * count for count in counts]
    assert chosen(Log("lengths", "all", alpha), lengths) == [list(range(count)) for count in counts]


class TestRandom:
    """The choice belongs to (seed, round, user) and to nothing else."""

    log = Log("float32", "random", 0.5)
    rows = [[float(length) for length in range(40)]] * 3

    def test_it_is_the_same_again_and_differs_between_users_rounds_and_seeds(self):
        first = chosen(self.log, self.rows, [7, 8, 9])
        assert first == chosen(self.log, self.rows, [7, 8, 9])
        assert len({tuple(client) for client in first}) == 3
        assert first != chosen(self.log, self.rows, [7, 8, 9], round_=2)
        assert first != chosen(self.log, self.rows, [7, 8, 9], seed=1)

    def test_it_does_not_depend_on_who_else_is_there_or_on_the_lengths(self):
        first = chosen(self.log, self.rows, [7, 8, 9])
        assert chosen(self.log, self.rows[:1], [8]) == [first[1]]
        assert chosen(self.log, [[1.0] * 40], [9]) == [first[2]]

    def test_every_row_has_the_same_chance(self):
        users = list(range(2000))
        kept = chosen(Log("float32", "random", 0.25), [[5.0, 4, 3, 2, 1, 0, 0, 0]] * len(users), users)
        times = np.bincount(np.concatenate(kept), minlength=8)
        assert times.sum() == 2 * len(users)
        assert (np.abs(times - 500) < 100).all()
