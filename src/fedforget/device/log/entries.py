"""Entries: what devices write into their logs in one round, as bytes that a store need not understand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.ragged import offsets
from fedforget.runtime.randomness import Rounds

#: The 64-bit keys by which stores know users (``randomness.user_key`` of the outside id).
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Entries:
    """The entries of some users, end to end: user ``keys[i]``'s is ``data[ptr[i]:ptr[i + 1]]``."""

    keys: Keys
    ptr: NDArray[np.int64]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return int(self.keys.size)

    def __iter__(self) -> Iterator[bytes]:
        whole = self.data.tobytes()
        return (whole[start:end] for start, end in zip(self.ptr[:-1].tolist(), self.ptr[1:].tolist(), strict=True))

    @classmethod
    def of(cls, keys: Keys, bodies: list[bytes]) -> Entries:
        """Lay bodies end to end."""
        return cls(keys, offsets([len(body) for body in bodies]), np.frombuffer(b"".join(bodies), np.uint8))

    def at(self, places: NDArray[np.int64]) -> Entries:
        """The entries at these places, in their order."""
        sizes = np.diff(self.ptr)[places]
        ptr = offsets(sizes)
        starts = np.repeat(self.ptr[:-1][places] - ptr[:-1], sizes)
        return Entries(self.keys[places], ptr, self.data[starts + np.arange(ptr[-1])])


#: No entries.
NOTHING = Entries(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.uint8))


def check(rounds: Rounds, entries: Entries, private: Array) -> NDArray[np.int64]:
    """The round of each entry. Refuses what a store could not give back.

    Each entry needs a private vector, and each user may have one entry a round.
    """
    if len(private) != len(entries) or entries.ptr.size != len(entries) + 1:
        raise ValueError(
            f"{len(entries)} users need as many private vectors and entries, "
            f"not {len(private)} and {entries.ptr.size - 1}."
        )
    of_each = np.full(len(entries), rounds, np.int64)
    order = np.lexsort((entries.keys, of_each))
    keys, ordered = entries.keys[order], of_each[order]
    if ((keys[1:] == keys[:-1]) & (ordered[1:] == ordered[:-1])).any():
        raise ValueError(f"A user has two entries for one round: the keys {entries.keys.tolist()} repeat.")
    return of_each


def by_round(rounds: NDArray[np.int64], entries: Entries) -> Iterator[tuple[int, Entries]]:
    """The entries of each round, the earliest first."""
    numbers = np.unique(rounds).tolist()
    for number in numbers:
        yield number, entries if len(numbers) == 1 else entries.at(np.flatnonzero(rounds == number))


def latest(rounds: NDArray[np.int64], keys: Keys) -> NDArray[np.int64]:
    """The place of each user's last round."""
    order = np.lexsort((rounds, keys))
    return np.sort(order[np.append(keys[order][1:] != keys[order][:-1], True)]) if keys.size else order


def find(keys: Keys, wanted: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of the wanted keys are among these, and where."""
    if np.array_equal(keys, wanted):
        everyone = np.arange(keys.size)
        return everyone, everyone
    if not keys.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    which = np.flatnonzero(keys[at] == wanted)
    return which, at[which]


def without(entries: Entries, keys: Keys) -> Entries:
    """The entries of all but some users."""
    return entries.at(np.flatnonzero(~np.isin(entries.keys, keys)))


def joined(parts: list[Entries]) -> Entries:
    """Entries end to end, sharing nothing with the parts."""
    sizes = [np.diff(part.ptr) for part in parts]
    return Entries(
        np.concatenate([part.keys for part in parts]),
        offsets(np.concatenate(sizes)),
        np.concatenate([part.data[part.ptr[0] : part.ptr[-1]] for part in parts]),
    )


def scan(
    rounds: Iterable[int], keys: Keys, users: Callable[[int], Keys], entries: Callable[[int], Entries]
) -> tuple[Entries, NDArray[np.int64]]:
    """Each user's first entry along these rounds, in the order of the keys, and its round."""
    missing = np.arange(keys.size)
    parts, found_in, places = [NOTHING], [np.empty(0, np.int64)], [missing[:0]]
    for round_ in rounds:
        which, at = find(users(round_), keys[missing])
        if which.size:
            parts.append(entries(round_).at(at))
            found_in.append(np.full(which.size, round_))
            places.append(missing[which])
            missing = np.delete(missing, which)
        if not missing.size:
            break
    order = np.argsort(np.concatenate(places))
    return joined(parts).at(order), np.concatenate(found_in)[order]
