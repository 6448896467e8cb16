"""Workers do every piece once, on any number of threads, and pass errors on."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest

import fedforget as ff
from fedforget.runtime.workers import Places, Workers, take, taken


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("pieces", [0, 1, 5, 3000])
def test_every_piece_is_done_once(count: int, pieces: int) -> None:
    done: list[int] = []
    Workers(count).run(lambda order, counter: done.extend(taken(order, counter)), np.ones(pieces, np.int64))
    assert sorted(done) == list(range(pieces))


def test_tickets_are_never_drawn_twice() -> None:
    counter = np.zeros(1, np.int64)
    drawn: list[list[int]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda mine: mine.extend(take(counter) for _ in range(20_000)), args=(mine,))
        for mine in drawn
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(ticket for mine in drawn for ticket in mine) == Counter(range(80_000))


def test_costly_pieces_come_first() -> None:
    done: list[int] = []
    Workers(1).run(lambda order, counter: done.extend(taken(order, counter)), np.array([3, 9, 1, 9]))
    assert done == [1, 3, 0, 2]


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_in_a_piece_is_passed_on(count: int) -> None:
    def work(order: Places, counter: Places) -> None:
        for piece in taken(order, counter):
            if piece == 5:
                raise ff.DataError("piece 5", "")

    with pytest.raises(ff.DataError, match="piece 5"):
        Workers(count).run(work, np.ones(10, np.int64))


def test_no_worker_is_refused() -> None:
    with pytest.raises(ff.ConfigError, match="workers is 0"):
        Workers(0)
