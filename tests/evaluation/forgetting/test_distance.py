"""Distances of models whose distance is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.evaluation.forgetting.distance import (
    aligned,
    item_distances,
    moved,
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


def test_poison_is_projected_on_the_direction_of_the_attack() -> None:
    push = 0.1 * RNG.normal(size=ITEMS.shape).astype(np.float32)
    pushed = ITEMS + push
    direction = moved((pushed @ TURN).astype(np.float32), (ITEMS @ TURN).astype(np.float32), ITEMS)
    assert direction == pytest.approx(push, abs=0.03)  # less the part that is a rotation
    assert projection(pushed, pushed, ITEMS, direction) == pytest.approx(1)
    assert projection(ITEMS, pushed, ITEMS, direction) == pytest.approx(0, abs=1e-6)
    assert projection((ITEMS + pushed) / 2, pushed, ITEMS, direction) == pytest.approx(0.5, abs=0.02)
    elsewhere = ITEMS + 0.1 * RNG.normal(size=ITEMS.shape).astype(np.float32)
    assert abs(projection(elsewhere, pushed, ITEMS, direction)) < 0.25


def test_neighbours_share_items_with_a_leaver() -> None:
    own = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1], [1, 1, 1, 0, 0]], bool)
    assert neighbours(own, np.array([[0, 0, 0, 1, 1]], bool), 2).tolist() == [1, 2]
