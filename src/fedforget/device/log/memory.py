"""MemoryStore: for experiments that need not survive their process. The plain loop that the other stores must equal.

What it does with the entries of a round is done with arrays, and PackedStore does the same with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState, others, stacked
from fedforget.device.log.entries import NOTHING, Entries, Keys, by_round, check, find, joined, latest, scan, without
from fedforget.models.parameters import Array
from fedforget.runtime.randomness import Rounds


class MemoryStore:
    """Keeps the entries of each round end to end, and two rounds of private parameters a user."""

    def __init__(self) -> None:
        self._rounds: dict[int, Entries] = {}
        self._exact: dict[int, dict[int, Array]] = {}

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Add entries, and what each user's private parameters are after the last of its rounds."""
        rounds = check(rounds, entries, private)
        for round_, part in by_round(rounds, entries):
            before = self._rounds.get(round_)
            self._rounds[round_] = joined([without(before, part.keys), part] if before else [part])
        last = latest(rounds, entries.keys)
        for key, round_, row in zip(entries.keys[last].tolist(), rounds[last].tolist(), private[last], strict=True):
            known = self._exact.setdefault(key, {})
            known[round_] = row
            if len(known) > 2:
                del known[min(known)]

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of those of these users who have one for the round, in the order asked."""
        entries = self._rounds.get(round_, NOTHING)
        return joined([entries]) if np.array_equal(entries.keys, keys) else entries.at(find(entries.keys, keys)[1])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry up to a round of those of these users who have one, and the round of each."""
        rounds = (round_ for round_ in sorted(self._rounds, reverse=True) if round_ <= until)
        return scan(rounds, keys, lambda round_: self._rounds[round_].keys, self._rounds.__getitem__)

    def private_state(self, until: int) -> PrivateState:
        """Of every user of whom it is known: the private parameters after the last round up to this one."""
        found = []
        for key, known in sorted(self._exact.items()):
            rounds = [round_ for round_ in known if round_ <= until]
            if rounds:
                found.append((key, max(rounds), known[max(rounds)]))
        return stacked(found)

    def set_private_state(self, exact: PrivateState) -> None:
        """Let these be the private parameters of these users; nothing is known of what they were before."""
        for key, round_, row in zip(exact.keys.tolist(), exact.rounds.tolist(), exact.rows.copy(), strict=True):
            self._exact[key] = {round_: row}

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round, and exact private parameters of later rounds."""
        self._rounds = {kept: entries for kept, entries in self._rounds.items() if kept <= round_}
        for key, known in list(self._exact.items()):
            self._exact[key] = {kept: row for kept, row in known.items() if kept <= round_}

    def drop(self, round_: int, keys: Keys) -> None:
        """Drop the entries of some users for one round."""
        rest = without(self._rounds.pop(round_, NOTHING), keys)
        if len(rest):
            self._rounds[round_] = rest

    def branch(self, folder: Path | None, until: int, without: Keys) -> MemoryStore:
        """A new store that begins as this one up to a round, with no trace of some users. It needs no folder."""
        new = MemoryStore()
        new._rounds = dict(self._rounds)
        for round_ in self._rounds:
            new.drop(round_, without)
        new.roll_back(until)
        new.set_private_state(others(self.private_state(until), without))
        return new

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For every round with entries, the oldest first: whose they are, and how many bytes each has."""
        for round_, entries in sorted(self._rounds.items()):
            yield round_, entries.keys.copy(), np.diff(entries.ptr)

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return max(self._rounds, default=0)

    def close(self) -> None:
        """There is no file to let go of."""
