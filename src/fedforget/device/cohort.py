"""Cohort: the clients of one task, each with its round, its items and its private parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.device.training import Trained
from fedforget.models.parameters import Array
from fedforget.runtime.ragged import offsets
from fedforget.runtime.randomness import UserId

#: Reasons why users have no update, by round and user.
Reasons = dict[tuple[int, UserId], str]


@dataclass(frozen=True)
class Cohort:
    """Users, the round that each is asked for, in ascending order, and the private parameters to start from.

    ``keys`` are the users' keys in the log, ``draw_keys`` those of their random draws.

    A user who is asked for several rounds appears several times. ``places`` are the positions among all users;
    ``own_items[own_ptr[c]:own_ptr[c + 1]]`` are the items of client c that count in its round.
    """

    users: list[UserId]
    keys: NDArray[np.uint64]
    draw_keys: NDArray[np.uint64]
    rounds: NDArray[np.int64]
    places: NDArray[np.int64]
    private: Array
    own_ptr: NDArray[np.int64]
    own_items: NDArray[np.int32]

    def only(self, keep: NDArray[np.bool_]) -> Cohort:
        sizes = np.diff(self.own_ptr)
        return Cohort(
            list(itertools.compress(self.users, keep)),
            self.keys[keep],
            self.draw_keys[keep],
            self.rounds[keep],
            self.places[keep],
            self.private[keep],
            offsets(sizes[keep]),
            self.own_items[np.repeat(keep, sizes)],
        )

    def named(self, found: Mapping[int, str]) -> Reasons:
        """Reasons by round and user, from reasons by position in this cohort."""
        return {(int(self.rounds[place]), self.users[place]): reason for place, reason in found.items()}


def last_of_each(
    places: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """The different places, which rows are the last of theirs, and for each row its number among the last ones."""
    last = np.zeros(places.size, bool)
    last[places.size - 1 - np.unique(places[::-1], return_index=True)[1]] = True
    order = np.argsort(places[last])
    return places[last], last, order[np.searchsorted(places[last], places, sorter=order)]


def add_up(trained: Trained, cohort: Cohort, sound: NDArray[np.bool_]) -> None:
    """Add a user's private updates of earlier rounds to those of later ones, in place."""
    order = np.lexsort((cohort.rounds, cohort.places))
    order = order[sound[order]]
    for before, now in itertools.pairwise(order.tolist()):
        if cohort.places[before] == cohort.places[now]:
            trained.private[now] += trained.private[before] - cohort.private[before]
