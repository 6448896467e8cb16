"""Interactions as a plain set of pairs, to compare with what a test wrote down."""

from __future__ import annotations

from fedforget.data import Interactions


def pairs_of(data: Interactions) -> set[tuple[int | str, int | str]]:
    """All (user id, item id) pairs."""
    users, items = data.pairs()
    return set(zip(data.user_ids[users].tolist(), data.item_ids[items].tolist(), strict=True))
