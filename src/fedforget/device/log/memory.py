"""MemoryStore: a log in memory, for experiments that need not survive their process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.contract import PrivateState
from fedforget.device.log.entries import NOTHING, Entries, Keys, check, find, first_of_each, joined, latest
from fedforget.models.parameters import Array
from fedforget.runtime.randomness import Rounds


class MemoryStore:
    """Keeps the entries of each round end to end, and two rounds of private parameters for each user.

    It is the reference: tests compare the other stores with it.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, Entries] = {}
        self._exact: dict[int, dict[int, Array]] = {}

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        rounds = check(rounds, entries, private)
        for round_ in np.unique(rounds).tolist():
            new = entries.at(rounds == round_)
            before = self._rounds.get(round_)
            self._rounds[round_] = joined([before.without(new.keys), new]) if before else new
        last = latest(rounds, entries.keys)
        for key, round_, row in zip(entries.keys[last].tolist(), rounds[last].tolist(), private[last], strict=True):
            states = self._exact.setdefault(key, {})
            states[round_] = row
            if len(states) > 2:
                del states[min(states)]

    def read(self, round_: int, keys: Keys) -> Entries:
        entries = self._rounds.get(round_, NOTHING)
        return entries.at(find(entries.keys, keys)[1])

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        return first_of_each(
            keys,
            (
                (entries.keys, np.full(len(entries), round_), entries.at)
                for round_, entries in sorted(self._rounds.items(), reverse=True)
                if round_ <= until
            ),
        )

    def private_state(self, until: int) -> PrivateState:
        found = []
        for key, states in sorted(self._exact.items()):
            rounds = [round_ for round_ in states if round_ <= until]
            if rounds:
                found.append((key, max(rounds), states[max(rounds)]))
        return PrivateState.of(found)

    def set_private_state(self, exact: PrivateState) -> None:
        for key, round_, row in zip(exact.keys.tolist(), exact.rounds.tolist(), exact.rows.copy(), strict=True):
            self._exact[key] = {round_: row}

    def roll_back(self, round_: int) -> None:
        self._rounds = {kept: entries for kept, entries in self._rounds.items() if kept <= round_}
        for key, states in self._exact.items():
            self._exact[key] = {kept: row for kept, row in states.items() if kept <= round_}

    def drop(self, round_: int, keys: Keys) -> None:
        rest = self._rounds.pop(round_, NOTHING).without(keys)
        if len(rest):
            self._rounds[round_] = rest

    def branch(self, folder: Path | None, until: int, without: Keys) -> MemoryStore:
        new = MemoryStore()
        new._rounds = dict(self._rounds)
        for round_ in self._rounds:
            new.drop(round_, without)
        new.roll_back(until)
        new.set_private_state(self.private_state(until).without(without))
        return new

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        for round_, entries in sorted(self._rounds.items()):
            yield round_, entries.keys.copy(), np.diff(entries.ptr)

    def last_round(self) -> int:
        return max(self._rounds, default=0)

    def close(self) -> None:
        pass
