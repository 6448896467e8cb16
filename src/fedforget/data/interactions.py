"""Interactions of users with items: checked when they are created, immutable afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedforget.data import lines, tables
from fedforget.data.ids import Id as Id
from fedforget.data.ids import checked_ids, factorised
from fedforget.data.tables import Chosen, Column
from fedforget.errors import DataError
from fedforget.runtime import randomness
from fedforget.runtime.ragged import offsets

#: The largest number of users or items: indices are 32-bit.
MOST_IDS = 2**31 - 1
SPLITS = ["random", "time"]


@dataclass(frozen=True, eq=False)
class Interactions:
    """The interactions of users with items as a CSR matrix with one row per user.

    ``user_ids`` and ``item_ids`` are the ids in the source (whole numbers or strings); everything else uses indices
    into them. ``indices[indptr[u]:indptr[u + 1]]`` are user u's items, sorted, each once. ``duplicates`` is the number
    of repeated interactions that were dropped. Parts of a split share both id lists, so an index means the same in all.

    ``times`` are the times of the interactions, in seconds; None if they are not known. ``since`` are the rounds from
    which interactions count that were added to a federation later; None if all count from the start.
    """

    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    duplicates: int = 0
    times: NDArray[np.float64] | None = None
    since: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        for array in (self.user_ids, self.item_ids, self.indptr, self.indices, self.times, self.since):
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_pairs(
        cls, users: ArrayLike, items: ArrayLike, times: ArrayLike | None = None, *, source: str = "the pairs"
    ) -> Interactions:
        """Build from columns of ids of equal length. Repeated (user, item) pairs count once, at their latest time."""
        user_column = checked_ids(users, "user", source)
        item_column = checked_ids(items, "item", source)
        seconds = None if times is None else np.asarray(times, np.float64)
        if user_column.size != item_column.size or (seconds is not None and seconds.size != user_column.size):
            raise DataError(
                f"{source} has {user_column.size} users but {item_column.size} items"
                + ("." if seconds is None else f" and {seconds.size} times."),
                "Give one user and one item for each interaction.",
            )
        if user_column.size == 0:
            raise DataError(f"{source} contains no interactions.", "Check the file, its separator and its header.")
        user_ids, user_index = factorised(user_column)
        item_ids, item_index = factorised(item_column)
        if max(user_ids.size, item_ids.size) > MOST_IDS:
            raise DataError(f"{source} has more than {MOST_IDS} users or items.", "Split the data.")
        codes, pair = np.unique(user_index * item_ids.size + item_index, return_inverse=True)
        indptr = np.searchsorted(codes, np.arange(user_ids.size + 1, dtype=np.int64) * item_ids.size)
        indices = (codes % item_ids.size).astype(np.int32)
        if seconds is not None:
            latest = np.full(codes.size, -np.inf)
            np.maximum.at(latest, pair, seconds)
            seconds = latest
        return cls(user_ids, item_ids, indptr.astype(np.int64), indices, int(user_column.size - codes.size), seconds)

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        user: Column = "user",
        item: Column = "item",
        separator: str | None = None,
        *,
        time: Column | None = None,
        rating: Column | None = None,
        min_rating: float | None = None,
    ) -> Interactions:
        """Read a CSV or TSV file by the names of its columns or, if it has no header, by their positions from 0.

        The default separator follows from the extension (``.csv`` comma; ``.tsv``, ``.data`` and ``.txt`` tab). With
        ``min_rating`` only rows with at least this rating count; the default ``rating`` column is ``rating``.
        """
        chosen = Chosen(user, item, time, rating, min_rating)
        return cls.from_pairs(*tables.csv_columns(path, chosen, separator), source=str(path))

    @classmethod
    def from_parquet(cls, path: str | Path, user: str = "user", item: str = "item", **columns: Any) -> Interactions:
        """Read a Parquet file. Options: ``time``, ``rating``, ``min_rating``, as for ``from_csv``."""
        return cls.from_pairs(*tables.parquet_columns(path, Chosen(user, item, **columns)), source=str(path))

    @classmethod
    def from_frame(cls, frame: Any, user: str = "user", item: str = "item", **columns: Any) -> Interactions:
        """Read a pandas or polars data frame. Options: ``time``, ``rating``, ``min_rating``, as for ``from_csv``."""
        return cls.from_pairs(*tables.frame_columns(frame, Chosen(user, item, **columns)), source="the frame")

    @classmethod
    def from_recbole(
        cls, path: str | Path, user: str = "user_id", item: str = "item_id", **columns: Any
    ) -> Interactions:
        """Read a RecBole atomic ``.inter`` file, whose header has the names and types of its columns.

        Options: ``time``, ``rating``, ``min_rating``, as for ``from_csv``.
        """
        return cls.from_pairs(*tables.recbole_columns(path, Chosen(user, item, **columns)), source=str(path))

    @classmethod
    def from_lines(cls, *paths: str | Path, n_items: int | None = None) -> Interactions:
        """Read files with one line per user: the user's number, then the item numbers, separated by blanks.

        With ``n_items`` the items are 0 to n_items - 1, including those without interactions.
        """
        data = cls.from_pairs(*lines.line_columns(*paths), source=", ".join(map(str, paths)))
        return data if n_items is None else data.with_items(np.arange(n_items))

    @classmethod
    def from_steam_csv(cls, path: str | Path, min_items: int = 5) -> Interactions:
        """Read Kaggle's ``steam-200k.csv``: a game that was bought and played counts once."""
        return cls.from_pairs(*tables.steam_columns(path, min_items), source=str(path))

    @property
    def n_users(self) -> int:
        return int(self.user_ids.size)

    @property
    def n_items(self) -> int:
        return int(self.item_ids.size)

    def __len__(self) -> int:
        return int(self.indices.size)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same ids and interactions; ``duplicates`` are ignored."""
        return self.digest == other.digest if isinstance(other, Interactions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Interactions({self.n_users:,} users, {self.n_items:,} items, {len(self):,} interactions)"

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of items of each user."""
        return np.diff(self.indptr)

    @cached_property
    def user_keys(self) -> NDArray[np.uint64]:
        """The key of each user's random streams, which depends on the user's id only."""
        return np.array([randomness.user_key(user) for user in self.user_ids.tolist()], np.uint64)

    @cached_property
    def digest(self) -> str:
        """A checksum of the ids and interactions, which identifies the data."""
        digest = hashlib.sha256()
        for ids in (self.user_ids, self.item_ids):
            digest.update(json.dumps(ids.tolist()).encode())
        for array in (self.indptr, self.indices):
            digest.update(array.astype("<i8").tobytes())
        if self.since is not None and self.since.any():
            digest.update(self.since.astype("<i8").tobytes())
        return digest.hexdigest()

    def items_of(self, user: int) -> NDArray[np.int32]:
        """The items of the user with this index, sorted."""
        return self.indices[self.indptr[user] : self.indptr[user + 1]]

    def item_ids_of(self, user: Id) -> list[Id]:
        """The ids of a user's items."""
        ids: list[Id] = self.item_ids[self.items_of(self.user_index(user))].tolist()
        return ids

    def rows(
        self, users: NDArray[np.int64], rounds: int | NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The items of several users, concatenated: those of ``users[i]`` are ``items[ptr[i]:ptr[i + 1]]``.

        With ``rounds``, those that count in a round, or in the round of each user.
        """
        counts = self.counts[users]
        ptr = offsets(counts)
        at = np.repeat(self.indptr[users] - ptr[:-1], counts) + np.arange(ptr[-1])
        if rounds is None or self.since is None:
            return ptr, self.indices[at]
        counted = self.since[at] <= np.repeat(np.broadcast_to(rounds, users.shape), counts)
        return offsets(counted)[ptr], self.indices[at[counted]]

    @cached_property
    def user_index_of(self) -> dict[Id, int]:
        """The index of each user id; a dictionary may have later ids too, with larger indices."""
        return {user: index for index, user in enumerate(self.user_ids.tolist())}

    @cached_property
    def item_index_of(self) -> dict[Id, int]:
        """The index of each item id; a dictionary may have later ids too, with larger indices."""
        return {item: index for index, item in enumerate(self.item_ids.tolist())}

    def user_index(self, user: Id) -> int:
        """The index of a user id."""
        return _index(self.user_index_of, self.user_ids, user, "user")

    def item_index(self, item: Id) -> int:
        """The index of an item id."""
        return _index(self.item_index_of, self.item_ids, item, "item")

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """All interactions as a column of user indices and a column of item indices."""
        return np.repeat(np.arange(self.n_users, dtype=np.int64), self.counts), self.indices

    def with_items(self, items: ArrayLike) -> Interactions:
        """The same interactions with a larger list of items, including items without interactions."""
        item_ids, _ = factorised(checked_ids(items, "item", "the item list"))
        index = {item: i for i, item in enumerate(item_ids.tolist())}
        new_indices = np.array([index.get(item, -1) for item in self.item_ids.tolist()], np.int32)
        if (new_indices < 0).any():
            lost = self.item_ids[new_indices < 0].tolist()[0]
            raise DataError(
                f"Item {lost!r} is not in the list of {item_ids.size} items.", "Give a list with all items of the data."
            )
        return replace(self, item_ids=item_ids, indices=new_indices[self.indices])

    def without(self, users: Iterable[Id]) -> Interactions:
        """The interactions without some users. The list of items stays the same."""
        keep = np.ones(self.n_users, bool)
        keep[[self.user_index(user) for user in users]] = False
        kept = self.rows_where(np.repeat(keep, self.counts))
        return replace(kept, user_ids=self.user_ids[keep], indptr=offsets(self.counts[keep]))

    def without_items(self, items: Mapping[Id, Iterable[Id]]) -> Interactions:
        """The interactions without some items of some users. Users and the list of items stay the same."""
        keep = np.ones(len(self), bool)
        for user, unwanted in items.items():
            index = self.user_index(user)
            own = self.items_of(index)
            keep[self.indptr[index] : self.indptr[index + 1]] = ~np.isin(own, [self.item_index(i) for i in unwanted])
        return self.rows_where(keep)

    def up_to(self, n_items: int) -> Interactions:
        """The interactions with the first items of the list only."""
        if n_items >= self.n_items:
            return self
        return replace(self.rows_where(self.indices < n_items), item_ids=self.item_ids[:n_items])

    def at(self, round_: int) -> Interactions:
        """The interactions that count in a round."""
        return self if self.since is None else self.rows_where(self.since <= round_)

    def only(self, users: Iterable[Id]) -> Interactions:
        """The interactions of some users only. The list of items stays the same."""
        kept = {self.user_index(user) for user in users}
        return self.without(user for index, user in enumerate(self.user_ids.tolist()) if index not in kept)

    def split(self, test: float = 0.2, seed: int = 0, by: str = "random") -> tuple[Interactions, Interactions]:
        """Split each user's items into a training and a test part, at random or, ``by="time"``, the latest for testing.

        The test part gets round(test * n) items of a user with n >= 2 items, at least one and never all; a single item
        stays in the training part. With ``test=0`` it is empty. The draw depends on (seed, user id) only.
        """
        if not 0 <= seed < 2**63:
            raise DataError(f"The seed is {seed}.", "Give a whole number from 0 to 2^63 - 1.")
        if not 0.0 <= test < 1.0:
            raise DataError(f"The test share is {test}.", "Give a share of at least 0 and below 1, such as 0.2.")
        if by not in SPLITS:
            raise DataError(f"A split by {by!r} is not known.", f"Use one of: {', '.join(SPLITS)}.")
        if by == "time" and self.times is None:
            raise DataError(
                "The interactions have no times to split by.",
                "Name the column when you read the data: time='timestamp'.",
            )
        in_test = np.zeros(len(self), bool)
        for user in range(self.n_users if test else 0):
            n = int(self.counts[user])
            if n >= 2:
                n_test = min(n - 1, max(1, int(test * n + 0.5)))
                in_test[self.indptr[user] + self._test_items(user, n_test, seed, by)] = True
        return self.rows_where(~in_test), self.rows_where(in_test)

    def _test_items(self, user: int, count: int, seed: int, by: str) -> NDArray[np.int64]:
        """Which of a user's items are for testing, as positions among them."""
        if by == "time" and self.times is not None:
            times = self.times[self.indptr[user] : self.indptr[user + 1]]
            return np.argsort(times, kind="stable")[-count:]
        order = np.arange(self.counts[user], dtype=np.int32)
        randomness.choose(randomness.stream(seed, randomness.SPLIT, 0, self.user_keys[user]), order, count)
        return order[:count].astype(np.int64)

    def rows_where(self, chosen: NDArray[np.bool_]) -> Interactions:
        """Some of the interactions, of the same users and items."""
        return Interactions(
            self.user_ids,
            self.item_ids,
            offsets(chosen)[self.indptr],
            self.indices[chosen],
            times=None if self.times is None else self.times[chosen],
            since=None if self.since is None else self.since[chosen],
        )


def _index(index_of: Mapping[Id, int], ids: NDArray[Any], wanted: object, kind: str) -> int:
    if isinstance(wanted, str | int | np.integer) and not isinstance(wanted, bool):
        index = index_of.get(wanted if isinstance(wanted, str) else int(wanted), ids.size)
        if index < ids.size:
            return index
    shown = ", ".join(repr(value) for value in ids[:3].tolist())
    raise DataError(f"There is no {kind} {wanted!r} in the data.", f"Its {ids.size} {kind} ids start {shown}.")
