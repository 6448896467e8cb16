"""Growth: interactions, users and items that come after a federation has started.

New users and items are appended to the id lists, so that an index keeps its meaning. The cost follows what is added,
but for copies of the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.data.ids import Id
from fedforget.data.interactions import Interactions
from fedforget.errors import DataError
from fedforget.runtime.randomness import user_key

#: Where interactions that have grown keep the room of their arrays.
ROOMS = "_rooms"


@dataclass(frozen=True)
class Added:
    """What an addition brought: new users and items, new interactions, and how many were there already.

    ``readmitted`` are new users who were forgotten before.
    """

    users: Sequence[Id]
    items: Sequence[Id]
    interactions: int
    known: int
    since: int
    readmitted: int = 0

    def __str__(self) -> str:
        again = f" ({self.readmitted:,} of them forgotten before)" if self.readmitted else ""
        return (
            f"Added {self.interactions:,} interactions, {len(self.users):,} users{again} and {len(self.items):,} "
            f"items; they count from round {self.since}. {self.known:,} interactions were there already."
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "interactions": self.interactions,
            "users": len(self.users),
            "readmitted": self.readmitted,
            "items": len(self.items),
            "known": self.known,
            "since": self.since,
        }


def grow(data: Interactions, more: Interactions, since: int) -> tuple[Interactions, Added]:
    """The interactions with more of them, which count from a round on, and what was new."""
    users, new_users = _extended(data.user_ids, data.user_index_of, more.user_ids, "user")
    items, new_items = _extended(data.item_ids, data.item_index_of, more.item_ids, "item")
    base = with_ids(data, users, items)
    rows, columns = more.pairs()
    user = np.array([base.user_index_of[id_] for id_ in more.user_ids.tolist()], np.int64)[rows]
    item = np.array([base.item_index_of[id_] for id_ in more.item_ids.tolist()], np.int32)[columns]
    order = np.lexsort((item, user))
    user, item = user[order], item[order]
    new, at = _places(base, user, item)
    found = int(np.count_nonzero(~new))
    user, item = user[new], item[new]
    indptr = base.indptr + np.concatenate([[0], np.cumsum(np.bincount(user, minlength=base.n_users))])
    rooms = data.__dict__.get(ROOMS) or (Room(base.indices), Room(_since(base)))
    indices, rounds = (
        room.with_rows(values, at, more)
        for room, values, more in zip(
            rooms, (base.indices, _since(base)), (item, np.full(item.size, since, np.int32)), strict=True
        )
    )
    grown = replace(base, indptr=indptr.astype(np.int64), indices=indices, times=None, since=rounds)
    grown.__dict__[ROOMS] = rooms
    return share_indices(base, grown), Added(new_users, new_items, int(user.size), found, since)


class Room:
    """An array with room at its end, so that appending does not copy it.

    Arrays that were returned before share its memory and keep their values.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self._array, self._used = values, values.size

    def with_rows(self, values: NDArray[Any], at: NDArray[np.int64], more: NDArray[Any]) -> NDArray[Any]:
        """Some values with more inserted before these positions. Appending to the latest values does not copy them."""
        size = values.size + more.size
        if more.size and at[0] < values.size:
            values = np.insert(values, at, more)
        elif values.base is self._array and values.size == self._used and size <= self._array.size:
            self._array[values.size : size] = more
            self._used = size
            return self._array[:size]
        else:
            values = np.concatenate([values, more])
        self._array, self._used = np.empty(size * 9 // 8, values.dtype), size
        self._array[:size] = values
        return self._array[:size]


def _since(data: Interactions) -> NDArray[np.int32]:
    return np.zeros(len(data), np.int32) if data.since is None else data.since


def check_times(data: Interactions, now: float) -> None:
    """Refuse interactions that are later than now, in seconds."""
    if data.times is not None and len(data) and data.times.max() > now:
        users, items = data.pairs()
        last = int(data.times.argmax())
        user, item = data.user_ids.tolist()[users[last]], data.item_ids.tolist()[items[last]]
        raise DataError(
            f"The interaction of user {user!r} with item {item!r} has the time {data.times[last]:.0f}, which is in the "
            "future. Nothing was added.",
            "Give times in seconds since 1970, or as dates.",
        )


def without_known(more: Interactions, *known: Interactions) -> Interactions:
    """The interactions that none of the others has."""
    rows, columns = more.pairs()
    new = np.ones(len(more), bool)
    for data in known:
        user = _indices(data.user_index_of, data.n_users, more.user_ids)[rows]
        item = _indices(data.item_index_of, data.n_items, more.item_ids)[columns]
        both = np.flatnonzero((user >= 0) & (item >= 0))
        order = both[np.lexsort((item[both], user[both]))]
        new[order] &= _places(data, user[order], item[order].astype(np.int32))[0]
    return more.rows_where(new)


def _indices(index_of: dict[Id, int], size: int, ids: NDArray[Any]) -> NDArray[np.int64]:
    """The index of each id, -1 for those that are not there."""
    found = np.array([index_of.get(id_, size) for id_ in ids.tolist()], np.int64)
    return np.where(found < size, found, -1)


def with_ids(data: Interactions, user_ids: NDArray[Any], item_ids: NDArray[Any]) -> Interactions:
    """The same interactions with longer lists of ids, which begin as the present ones."""
    n_new = user_ids.size - data.n_users
    if n_new == 0 and item_ids.size == data.n_items:
        return data
    indptr = np.concatenate([data.indptr, np.full(n_new, data.indptr[-1])])
    longer = replace(data, user_ids=user_ids, item_ids=item_ids, indptr=indptr)
    return share_indices(data, longer)


def share_indices(old: Interactions, new: Interactions) -> Interactions:
    """Give interactions with the same or longer id lists the indices and keys that the old ones have computed."""
    for name, ids, was in (("user_index_of", new.user_ids, old.n_users), ("item_index_of", new.item_ids, old.n_items)):
        index_of = getattr(old, name)
        if len(index_of) not in (was, ids.size):  # another growth of the same data has extended it
            continue
        if len(index_of) == was:
            index_of.update((id_, was + place) for place, id_ in enumerate(ids[was:].tolist()))
        new.__dict__[name] = index_of
    keys = [user_key(user) for user in new.user_ids[old.n_users :].tolist()]
    new.__dict__["user_keys"] = np.concatenate([old.user_keys, np.array(keys, np.uint64)])
    return new


def _extended(
    ids: NDArray[Any], index_of: dict[Id, int], more: NDArray[Any], kind: str
) -> tuple[NDArray[Any], list[Id]]:
    """A list of ids with those that are new at its end, and the new ones."""
    here, there = ("text" if column.dtype.kind == "O" else "numbers" for column in (more, ids))
    if ids.size and more.size and here != there:
        raise DataError(
            f"The {kind} ids to add are {here}, such as {more.tolist()[0]!r}; those of the federation are {there}.",
            "Use the same type of ids.",
        )
    new = [id_ for id_ in more.tolist() if index_of.get(id_, ids.size) >= ids.size]
    return (np.concatenate([ids, np.array(new, ids.dtype)]) if new else ids), new


def _places(
    data: Interactions, user: NDArray[np.int64], item: NDArray[np.int32]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which pairs, sorted by user and item, are new, and where each new one belongs among the interactions."""
    users, which = np.unique(user, return_inverse=True)
    ptr, own = data.rows(users)
    width = np.int64(data.n_items)
    present = np.repeat(np.arange(users.size), np.diff(ptr)) * width + own
    wanted = which * width + item
    at = np.searchsorted(present, wanted)
    new = np.ones(wanted.size, bool)
    inside = at < present.size
    new[inside] = present[at[inside]] != wanted[inside]
    places = data.indptr[user] + at - ptr[which]
    return new, places[new]
