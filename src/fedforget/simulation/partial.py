"""Erasing part of a history: checks of the items that are to be forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedforget.errors import ConfigError
from fedforget.runtime.randomness import ItemId, UserId
from fedforget.server.erasure_queue import NO_ITEMS_LEFT
from fedforget.server.request import ErasureRequest, ItemsOf, PartialErasure

if TYPE_CHECKING:
    from fedforget.simulation.federation import Federation


def items_by_user(user: UserId | None, items: ItemsOf | Sequence[ItemId] | None) -> ItemsOf | None:
    """Items to forget, by user."""
    if isinstance(items, Mapping):
        if user is not None:
            raise ConfigError("forget() was given a user and items by user.", "Give items={user: [...]} alone.")
        return items
    if (user is None) != (items is None):
        raise ConfigError("forget() takes user and items together.", "forget(user=17, items=[50, 181])")
    return None if user is None or items is None else {user: list(items)}


def applicable(fed: Federation, request: ErasureRequest) -> ErasureRequest:
    """A request without what does not apply: other users, items that a user does not have.

    A user of whose training items none would remain is forgotten as a whole.
    """
    request, whole, partial = request.among(set(fed.members)), [], []
    for part in request.partial:
        held = held_items(fed, part.user, part.items)
        if held and set(fed.train.item_ids_of(part.user)) <= set(held):
            whole.append(part.user)
        elif held:
            partial.append(replace(part, items=held))
    return replace(request, users=(*request.users, *whole), partial=tuple(partial))


def held_items(fed: Federation, user: UserId, items: Sequence[ItemId]) -> tuple[ItemId, ...]:
    """Those of some items that a user has."""
    place, index_of = fed.train.user_index(user), fed.train.item_index_of
    own = set(fed.train.items_of(place).tolist())
    if fed.test is not None:
        own.update(fed.test.items_of(place).tolist())
    return tuple(item for item in dict.fromkeys(items) if index_of.get(item) in own)


def partial_erasure(
    fed: Federation, user: UserId, items: Sequence[ItemId], forgotten: Sequence[UserId]
) -> PartialErasure:
    """The erasure of some items of a user; refused if they cannot be forgotten.

    ``forgotten`` are the users who are forgotten as a whole by the same request.
    """
    if user in forgotten:
        raise ConfigError(f"User {user!r} is to be forgotten as a whole and for some items.", "Give one of them.")
    if not items:
        raise ConfigError(f"No items of user {user!r} are named.", "Name at least one.")
    train, test = fed.train, fed.test
    place = train.user_index(user)
    rows = slice(train.indptr[place], train.indptr[place + 1])
    own = train.indices[rows]
    since = np.zeros(own.size, np.int64) if train.since is None else train.since[rows].astype(np.int64)
    wanted = np.array([train.item_index(item) for item in items], np.int64)
    held_out = np.empty(0, np.int32) if test is None else test.items_of(place)
    missing = wanted[~np.isin(wanted, np.concatenate([own, held_out]))]
    if missing.size:
        item = train.item_ids.tolist()[missing[0]]
        raise ConfigError(f"User {user!r} does not have item {item!r}.", "Name items that the user has.")
    erased = np.isin(own, wanted)
    unwanted = tuple(train.item_ids[np.unique(wanted)].tolist())
    if not erased.any():
        return PartialErasure(user, len(unwanted), None, unwanted)
    first = fed.history.first_round_of([user])
    if not (~erased & (since <= (fed.rounds + 1 if first is None else first))).any():
        raise ConfigError(
            f"User {user!r} {NO_ITEMS_LEFT}.",
            f"Forget the user as a whole: forget([{user!r}]).",
        )
    return PartialErasure(user, len(unwanted), max(int(since[erased].min()), 1), unwanted)
