"""Quota: the limit on the bytes of a device's log, and what is dropped when it is reached."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from fedforget.device.log.contract import LogStore
from fedforget.device.log.entries import Entries
from fedforget.protocol.log import Log
from fedforget.runtime.randomness import Rounds


class Quota:
    """Keeps each user's log within the limit. A user whose log is full takes part with an empty entry."""

    def __init__(self, config: Log, store: LogStore) -> None:
        self.config = config
        self.store = store
        self._entries: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        for round_, keys, sizes in store.heads():
            for key, size in zip(keys.tolist(), sizes.tolist(), strict=True):
                self._entries[key].append((round_, size))

    def admit(self, rounds: Rounds, entries: Entries) -> Entries:
        """These entries, empty where there is no room. Under the policy ``oldest``, older entries are dropped first."""
        of_each = np.full(len(entries), rounds, np.int64)
        fits = np.ones(len(entries), bool)
        dropped: defaultdict[int, list[int]] = defaultdict(list)
        places: dict[tuple[int, int], int] = {}
        lines = zip(of_each.tolist(), entries.keys.tolist(), np.diff(entries.ptr).tolist(), strict=True)
        for place, (round_, key, size) in enumerate(lines):
            stored = self._entries[key]
            if stored and stored[-1][0] == round_:
                stored.pop()
            if self.config.when_full == "oldest" and size <= self.config.quota:
                while stored and self._used(key) + size > self.config.quota:
                    oldest = stored.popleft()[0]
                    if (oldest, key) in places:  # it is one of these entries, not yet in the store
                        fits[places[oldest, key]] = False
                    else:
                        dropped[oldest].append(key)
            fits[place] = self._used(key) + size <= self.config.quota
            places[round_, key] = place
            if fits[place]:
                stored.append((round_, size))
        for round_, keys in dropped.items():
            self.store.drop(round_, np.array(keys, np.uint64))
        if fits.all():
            return entries
        return Entries.of(entries.keys, [body if fit else b"" for body, fit in zip(entries, fits, strict=True)])

    def _used(self, key: int) -> int:
        return sum(size for _, size in self._entries[key])
