"""Entries: the bytes that devices add to their logs, laid end to end for many users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime.ragged import cut, offsets
from fedforget.runtime.randomness import Rounds

#: The 64-bit keys by which stores know users (``randomness.user_key`` of the user id).
Keys = NDArray[np.uint64]
#: Positions, or a mask.
Places = NDArray[np.int64] | NDArray[np.bool_]


@dataclass(frozen=True)
class Entries:
    """The entries of some users, end to end: the entry of user ``keys[i]`` is ``data[ptr[i]:ptr[i + 1]]``."""

    keys: Keys
    ptr: NDArray[np.int64]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return int(self.keys.size)

    def __iter__(self) -> Iterator[bytes]:
        data = self.data.tobytes()
        return (data[start:end] for start, end in zip(self.ptr[:-1].tolist(), self.ptr[1:].tolist(), strict=True))

    @classmethod
    def of(cls, keys: Keys, bodies: list[bytes]) -> Entries:
        """Entries with these bodies."""
        return cls(keys, offsets([len(body) for body in bodies]), np.frombuffer(b"".join(bodies), np.uint8))

    def at(self, places: Places) -> Entries:
        """A copy of the entries at some places, in that order."""
        return Entries(self.keys[places], *cut(self.data, self.ptr[:-1][places], np.diff(self.ptr)[places]))

    def without(self, keys: Keys) -> Entries:
        """A copy of the entries of all other users."""
        return self.at(~np.isin(self.keys, keys))


#: No entries.
NOTHING = Entries(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.uint8))
#: Entries to search: their users, their rounds, and a function that returns those at some places.
Candidates = tuple[Keys, NDArray[np.int64], Callable[[NDArray[np.int64]], Entries]]


def check(rounds: Rounds, entries: Entries, private: Array) -> NDArray[np.int64]:
    """The round of each entry. Each entry needs a private vector, and a user may have one entry per round."""
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


def latest(rounds: NDArray[np.int64], keys: Keys) -> NDArray[np.int64]:
    """The place of each user's last round."""
    order = np.lexsort((rounds, keys))
    return np.sort(order[np.append(keys[order][1:] != keys[order][:-1], True)]) if keys.size else order


def find(keys: Keys, wanted: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of the wanted keys are in ``keys``, and at which places."""
    if np.array_equal(keys, wanted):
        everyone = np.arange(keys.size)
        return everyone, everyone
    if not keys.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    which = np.flatnonzero(keys[at] == wanted)
    return which, at[which]


def joined(parts: list[Entries]) -> Entries:
    """A copy of several entries as one."""
    return Entries(
        np.concatenate([part.keys for part in parts]),
        offsets(np.concatenate([np.diff(part.ptr) for part in parts])),
        np.concatenate([part.data[part.ptr[0] : part.ptr[-1]] for part in parts]),
    )


def first_of_each(keys: Keys, candidates: Iterable[Candidates]) -> tuple[Entries, NDArray[np.int64]]:
    """Each user's first entry among the candidates, in the order of ``keys``, and its round."""
    missing = np.arange(keys.size)
    parts, found_in, places = [NOTHING], [missing[:0]], [missing[:0]]
    for users, rounds, entries_at in candidates:
        which, at = find(users, keys[missing])
        if which.size:
            parts.append(entries_at(at))
            found_in.append(rounds[at])
            places.append(missing[which])
            missing = np.delete(missing, which)
        if not missing.size:
            break
    order = np.argsort(np.concatenate(places))
    return joined(parts).at(order), np.concatenate(found_in)[order]
