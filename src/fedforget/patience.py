"""Patience: how soon to try again what takes long and does not succeed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

#: An attempt that is over sooner has cost nobody anything.
QUICK = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0


class Patience:
    """Doubles the pause after every attempt that took its time, and begins anew when there is something new to try."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._pause = FIRST_PAUSE
        self._again = 0.0

    def allows(self, wanted: Collection[str]) -> bool:
        """Whether it is time to try these."""
        if not self._known.issuperset(wanted):
            self._known, self._pause, self._again = frozenset(wanted), FIRST_PAUSE, 0.0
        return time.monotonic() >= self._again

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Measure an attempt."""
        begun = time.monotonic()
        yield
        if time.monotonic() - begun > QUICK:
            self._again = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
