"""Interactions: who touched what, checked by whatever makes them and immutable from then on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedforget.data import lines, tables
from fedforget.data.ids import Id as Id
from fedforget.data.ids import checked_ids, factorised
from fedforget.data.tables import Column
from fedforget.errors import DataError
from fedforget.runtime import randomness
from fedforget.runtime.ragged import offsets

#: Dense indices are 32-bit, so neither users nor items may outnumber them.
MOST_IDS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Interactions:
    """The interactions of users with items, one CSR row a user.

    ``user_ids`` and ``item_ids`` are the outside ids (whole numbers or strings); everything else speaks in
    dense indices into them. ``indices[indptr[u]:indptr[u + 1]]`` are user u's items, sorted, each once.
    Parts of a split share both id lists, so an index means the same in all of them.
    """

    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    duplicates: int = 0

    def __post_init__(self) -> None:
        for array in (self.user_ids, self.item_ids, self.indptr, self.indices):
            array.flags.writeable = False

    @classmethod
    def from_pairs(cls, users: ArrayLike, items: ArrayLike, *, source: str = "the pairs") -> Interactions:
        """Build from two equally long columns of ids. Rows that repeat a (user, item) pair count once."""
        user_column = checked_ids(users, "user", source)
        item_column = checked_ids(items, "item", source)
        if user_column.size != item_column.size:
            raise DataError(
                f"{source} has {user_column.size} users but {item_column.size} items.",
                "Give one user and one item for each interaction.",
            )
        if user_column.size == 0:
            raise DataError(f"{source} holds no interactions.", "Check the file, its separator and its header.")
        user_ids, user_index = factorised(user_column)
        item_ids, item_index = factorised(item_column)
        if max(user_ids.size, item_ids.size) > MOST_IDS:
            raise DataError(f"{source} has more than {MOST_IDS} users or items.", "Split the data.")
        codes = np.unique(user_index * item_ids.size + item_index)
        indptr = np.searchsorted(codes, np.arange(user_ids.size + 1, dtype=np.int64) * item_ids.size)
        indices = (codes % item_ids.size).astype(np.int32)
        return cls(user_ids, item_ids, indptr.astype(np.int64), indices, int(user_column.size - codes.size))

    @classmethod
    def from_csv(
        cls, path: str | Path, user: Column = "user", item: Column = "item", separator: str | None = None
    ) -> Interactions:
        """Read a CSV or TSV file, given the names of its columns, or their places (from 0) without a header.

        The separator follows the ending (``.csv`` comma, ``.tsv``, ``.data`` and ``.txt`` tab) unless given.
        """
        return cls.from_pairs(*tables.csv_columns(path, user, item, separator), source=str(path))

    @classmethod
    def from_parquet(cls, path: str | Path, user: str = "user", item: str = "item") -> Interactions:
        """Read two columns of a Parquet file."""
        return cls.from_pairs(*tables.parquet_columns(path, user, item), source=str(path))

    @classmethod
    def from_frame(cls, frame: Any, user: str = "user", item: str = "item") -> Interactions:
        """Take two columns of a pandas or polars data frame."""
        return cls.from_pairs(*tables.frame_columns(frame, user, item), source="the frame")

    @classmethod
    def from_recbole(cls, path: str | Path, user: str = "user_id", item: str = "item_id") -> Interactions:
        """Read a RecBole atomic ``.inter`` file, whose header names and types its columns."""
        return cls.from_pairs(*tables.recbole_columns(path, user, item), source=str(path))

    @classmethod
    def from_lines(cls, *paths: str | Path, n_items: int | None = None) -> Interactions:
        """Read files of one line a user: the user's number, then the item numbers, with blanks between.

        With ``n_items`` the items are 0 to n_items - 1, whether or not anyone touched them.
        """
        data = cls.from_pairs(*lines.line_columns(*paths), source=", ".join(map(str, paths)))
        return data if n_items is None else data.with_items(np.arange(n_items))

    @classmethod
    def from_steam_csv(cls, path: str | Path, min_items: int = 5) -> Interactions:
        """Read Kaggle's ``steam-200k.csv``: a game bought and played counts once."""
        return cls.from_pairs(*tables.steam_columns(path, min_items), source=str(path))

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return int(self.user_ids.size)

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return int(self.item_ids.size)

    def __len__(self) -> int:
        return int(self.indices.size)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same interactions of the same ids, however many repeats were dropped."""
        return self.digest == other.digest if isinstance(other, Interactions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Interactions({self.n_users:,} users, {self.n_items:,} items, {len(self):,} interactions)"

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many items each user has."""
        return np.diff(self.indptr)

    @cached_property
    def user_keys(self) -> NDArray[np.uint64]:
        """The key that names each user's random streams; it depends on the outside id alone."""
        return np.array([randomness.user_key(user) for user in self.user_ids.tolist()], np.uint64)

    @cached_property
    def digest(self) -> str:
        """A checksum of the ids and interactions, to recognise the data again."""
        digest = hashlib.sha256()
        for ids in (self.user_ids, self.item_ids):
            digest.update(json.dumps(ids.tolist()).encode())
        for array in (self.indptr, self.indices):
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()

    def items_of(self, user: int) -> NDArray[np.int32]:
        """The items of the user with this index, sorted."""
        return self.indices[self.indptr[user] : self.indptr[user + 1]]

    def rows(self, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The items of several users, end to end: user i's are ``items[ptr[i]:ptr[i + 1]]``."""
        ptr = offsets(self.counts[users])
        starts = np.repeat(self.indptr[users] - ptr[:-1], self.counts[users])
        return ptr, self.indices[starts + np.arange(ptr[-1])]

    def user_index(self, user: Id) -> int:
        """The index of an outside user id."""
        return self._index(self.user_ids, user, "user")

    def item_index(self, item: Id) -> int:
        """The index of an outside item id."""
        return self._index(self.item_ids, item, "item")

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """All interactions as a column of user indices and a column of item indices."""
        return np.repeat(np.arange(self.n_users, dtype=np.int64), self.counts), self.indices

    def with_items(self, items: ArrayLike) -> Interactions:
        """The same interactions over a larger list of items, some of which no one touched."""
        item_ids, _ = factorised(checked_ids(items, "item", "the item list"))
        place = {item: index for index, item in enumerate(item_ids.tolist())}
        places = np.array([place.get(item, -1) for item in self.item_ids.tolist()], np.int32)
        if (places < 0).any():
            lost = self.item_ids[places < 0].tolist()[0]
            raise DataError(f"Item {lost!r} is not in the list of {item_ids.size} items.", "Give a longer list.")
        return Interactions(self.user_ids, item_ids, self.indptr, places[self.indices], self.duplicates)

    def without(self, users: Iterable[Id]) -> Interactions:
        """The same interactions without some users. The item list stays as it is."""
        keep = np.ones(self.n_users, bool)
        keep[[self.user_index(user) for user in users]] = False
        rows = np.repeat(keep, self.counts)
        indptr = offsets(self.counts[keep])
        return Interactions(self.user_ids[keep], self.item_ids, indptr, self.indices[rows])

    def only(self, users: Iterable[Id]) -> Interactions:
        """The same interactions of some users alone. The item list stays as it is."""
        kept = {self.user_index(user) for user in users}
        return self.without(user for place, user in enumerate(self.user_ids.tolist()) if place not in kept)

    def split(self, test: float = 0.2, seed: int = 0) -> tuple[Interactions, Interactions]:
        """Split each user's items at random into a training and a test part.

        A user with n >= 2 items gives round(test * n) of them to the test, at least one and never all;
        a user with a single item keeps it for training. The draw depends on (seed, user id) alone.
        """
        if not 0 <= seed < 2**63:
            raise DataError(f"The seed is {seed}.", "Give a whole number from 0 to 2^63 - 1.")
        if not 0.0 < test < 1.0:
            raise DataError(f"The test share is {test}.", "Give a share between 0 and 1, such as 0.2.")
        for_test = np.zeros(len(self), bool)
        for user in range(self.n_users):
            n = int(self.counts[user])
            if n >= 2:
                order = np.arange(n, dtype=np.int32)
                n_test = min(n - 1, max(1, int(test * n + 0.5)))
                draws = randomness.stream(seed, randomness.SPLIT, 0, self.user_keys[user])
                randomness.choose(draws, order, n_test)
                for_test[self.indptr[user] + order[:n_test]] = True
        return self._part(~for_test), self._part(for_test)

    def _part(self, rows: NDArray[np.bool_]) -> Interactions:
        indptr = offsets(rows)[self.indptr]
        return Interactions(self.user_ids, self.item_ids, indptr, self.indices[rows])

    @staticmethod
    def _index(ids: NDArray[Any], wanted: Id, kind: str) -> int:
        kinds = str if ids.dtype.kind in "OU" else (int, np.integer)
        if isinstance(wanted, kinds) and not isinstance(wanted, bool):
            place = int(np.searchsorted(ids, wanted))
            if place < ids.size and ids[place] == wanted:
                return place
        shown = ", ".join(repr(value) for value in ids[:3].tolist())
        raise DataError(f"There is no {kind} {wanted!r} in the data.", f"Its {ids.size} {kind} ids start {shown}.")
