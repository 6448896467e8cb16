"""Catalogue: the items that were added to a federation after its start, and the parameters that they begin with."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from fedforget.errors import RunError
from fedforget.protocol.device_config import DeviceConfig
from fedforget.runtime.randomness import ItemId, item_key
from fedforget.server.state import ServerState

SCHEMA = """
CREATE TABLE IF NOT EXISTS item (place INTEGER PRIMARY KEY, id NOT NULL UNIQUE, since INTEGER NOT NULL);
"""


class Catalogue:
    """Added items, in the order of the item table, each with the round from which it counts."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._sizes: tuple[list[int], list[int]] | None = None

    def added(self, round_: int) -> int:
        """The number of added items that count in a round."""
        rounds, totals = self._totals()
        return totals[bisect_right(rounds, round_)]

    def sizes(self) -> list[tuple[int, int]]:
        """The rounds from which items were added, and the number of added items from each on."""
        rounds, totals = self._totals()
        return list(zip(rounds, totals[1:], strict=True))

    def _totals(self) -> tuple[list[int], list[int]]:
        if self._sizes is None:
            found = self._db.execute("SELECT since, COUNT(*) FROM item GROUP BY since ORDER BY since").fetchall()
            self._sizes = [since for since, _ in found], list(accumulate((count for _, count in found), initial=0))
        return self._sizes

    def ids(self, first: int = 0) -> list[ItemId]:
        """The ids of the added items from a position on."""
        return [row[0] for row in self._db.execute("SELECT id FROM item WHERE place >= ? ORDER BY place", (first,))]

    def extend(self, items: Sequence[ItemId], since: int) -> None:
        """Add items that count from a round on; the caller holds a transaction."""
        first = self._db.execute("SELECT COUNT(*) FROM item").fetchone()[0]
        rows = [(first + place, item, since) for place, item in enumerate(items)]
        self._db.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)
        self._sizes = None

    def rows(self) -> list[tuple[int, ItemId, int]]:
        """Position, id and first round of every added item."""
        return self._db.execute("SELECT place, id, since FROM item ORDER BY place").fetchall()


def grown(state: ServerState, size: int, base: int, catalogue: Catalogue, config: DeviceConfig) -> ServerState:
    """The state with the initial rows of added items, up to a number of items; ``base`` is the number at the start."""
    present = state.public.items.shape[0]
    if size <= present:
        return state
    ids = catalogue.ids(present - base)[: size - present]
    if len(ids) < size - present:
        raise RunError(f"The catalogue has {base + len(ids):,} items, {size:,} are needed.", "Restore history.sqlite.")
    keys = np.array([item_key(item) for item in ids], np.uint64)
    return state.grown(config.model.init_items(keys, config.seed))
