"""Quota: the bytes that a device's log may take, and what gives way when they are used up."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from fedforget.device.log.contract import LogStore
from fedforget.device.log.entries import Entries
from fedforget.protocol.log import Log
from fedforget.runtime.randomness import Rounds


class Quota:
    """Counts each user's entries. A user without room still takes part, with an entry of no bytes."""

    def __init__(self, settings: Log, store: LogStore) -> None:
        self.config = settings
        self.store = store
        self._entries: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        for round_, keys, sizes in store.heads():
            for key, size in zip(keys.tolist(), sizes.tolist(), strict=True):
                self._entries[key].append((round_, size))

    def admit(self, rounds: Rounds, entries: Entries) -> Entries:
        """These entries as far as there is room; under the policy ``oldest`` room is made."""
        sizes = np.diff(entries.ptr)
        of_each = np.full(len(entries), rounds, np.int64)
        fits = np.ones(len(entries), bool)
        dropped: defaultdict[int, list[int]] = defaultdict(list)
        places: dict[tuple[int, int], int] = {}
        lines = zip(of_each.tolist(), entries.keys.tolist(), sizes.tolist(), strict=True)
        for place, (round_, key, size) in enumerate(lines):
            own = self._entries[key]
            if own and own[-1][0] == round_:
                own.pop()
            if self.config.when_full == "oldest" and size <= self.config.quota:
                while own and self._used(key) + size > self.config.quota:
                    oldest = own.popleft()[0]
                    if (oldest, key) in places:  # of these entries, and not stored yet
                        fits[places[oldest, key]] = False
                    else:
                        dropped[oldest].append(key)
            fits[place] = self._used(key) + size <= self.config.quota
            places[round_, key] = place
            if fits[place]:
                own.append((round_, size))
        for past, keys in dropped.items():
            self.store.drop(past, np.array(keys, np.uint64))
        if fits.all():
            return entries
        return Entries.of(entries.keys, [body if fit else b"" for body, fit in zip(entries, fits, strict=True)])

    def _used(self, key: int) -> int:
        return sum(size for _, size in self._entries[key])
