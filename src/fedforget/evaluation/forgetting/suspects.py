"""Suspects: the users whose memory is tested, with what the attacker knows of them, and of the items."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.evaluation.forgetting.scores import Flags, Ints
from fedforget.models.parameters import Array
from fedforget.runtime import randomness
from fedforget.runtime.ragged import offsets

#: Items of similar popularity are compared with each other: this many classes of equal size.
CLASSES = 40
#: The number of the random stream of halves, which no pair of worlds has.
HALVES = 1 << 31
#: A class has at least this many items, if there are so many.
LEAST = 8


@dataclass(frozen=True)
class Suspects:
    """Some ``users`` (indices) of the data of everybody: the attacker knows their items and all items' popularity."""

    data: Interactions
    users: Ints
    seed: int

    def __len__(self) -> int:
        return int(self.users.size)

    @cached_property
    def own(self) -> Flags:
        """Which items each suspect has (users, items)."""
        table = np.zeros((len(self), self.data.n_items), bool)
        ptr, items = self.data.rows(self.users)
        table[np.repeat(np.arange(len(self)), np.diff(ptr)), items] = True
        return table

    @cached_property
    def shares(self) -> Array:
        """The share of each item among each suspect's (users, items)."""
        shares: Array = (self.own / np.maximum(self.own.sum(1, keepdims=True), 1)).astype(np.float32)
        return shares

    @cached_property
    def halves(self) -> tuple[Flags, Flags]:
        """A random half of each suspect's items, and the other half."""
        ptr, items = self.data.rows(self.users)
        first = np.zeros_like(self.own)
        for place, key in enumerate(self.data.user_keys[self.users]):
            mixed = items[ptr[place] : ptr[place + 1]].copy()
            randomness.shuffle(randomness.stream(self.seed, randomness.AUDIT, HALVES, key), mixed)
            first[place, mixed[: (mixed.size + 1) // 2]] = True
        return first, self.own & ~first

    @cached_property
    def popularity(self) -> Ints:
        """The number of users of each item."""
        return np.bincount(self.data.indices, minlength=self.data.n_items).astype(np.int64)

    @cached_property
    def members(self) -> Array:
        """Which popularity class each item is in (items, classes), as zeros and ones."""
        count = max(1, min(CLASSES, self.data.n_items // LEAST))
        order = np.argsort(-self.popularity, kind="stable")
        table = np.zeros((self.data.n_items, count), np.float32)
        table[order, np.arange(order.size) * count // order.size] = 1
        return table


def row_pointers(table: Flags) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The items of each row of a table: those of row i are ``items[ptr[i]:ptr[i + 1]]``."""
    return offsets(table.sum(1)), np.nonzero(table)[1].astype(np.int32)
