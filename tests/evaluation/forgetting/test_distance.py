"""Distances of models whose distance is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.evaluation.forgetting.distance import (
    aligned,
    item_distances,
    neighbours,
    overlap,
    projection,
    table_distance,
)

RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(50, 4)).astype(np.float32)
TURN = np.linalg.qr(RNG.normal(size=(4, 4)))[0]


def test_a_rotated_table_is_the_same_table() -> None:
    turned = (ITEMS @ TURN).astype(np.float32)
    assert aligned(turned, ITEMS) == pytest.approx(ITEMS, abs=1e-5)
    assert item_distances(turned, ITEMS).max() < 1e-5


def test_one_item_that_moved_is_the_furthest() -> None:
    other = ITEMS.copy()
    other[7] += 3
    assert item_distances((other @ TURN).astype(np.float32), ITEMS).argmax() == 7
    apart = aligned(other, ITEMS) - ITEMS
    expected = np.linalg.norm(apart) / np.linalg.norm(ITEMS)
    assert table_distance(item_distances(other, ITEMS)) == pytest.approx(expected)
    assert expected == pytest.approx(6 / np.linalg.norm(ITEMS), rel=0.2)


def test_lists_share_what_they_share() -> None:
    lists = np.array([[1, 2, 3], [4, 5, -1], [6, 7, 8]])
    others = np.array([[3, 2, 9], [4, 5, 6], [0, 1, -1]])
    assert overlap(lists, others).tolist() == [2 / 3, 1, 0]


def test_a_difference_is_projected_on_a_direction() -> None:
    push = RNG.normal(size=ITEMS.shape)
    assert projection(push, push) == pytest.approx(1)
    assert projection(push / 2 - ITEMS * (ITEMS * push).sum() / (ITEMS**2).sum(), push) < 0.5
    assert projection(np.zeros_like(push), push) == 0
    assert projection(push, np.zeros_like(push)) == 0


def test_neighbours_share_items_with_a_leaver() -> None:
    own = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1], [1, 1, 1, 0, 0]], bool)
    assert neighbours(own, np.array([[0, 0, 0, 1, 1]], bool), 2).tolist() == [1, 2]
