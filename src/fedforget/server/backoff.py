"""Backoff: when to repeat a slow task that did not succeed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

#: An attempt shorter than this many seconds needs no pause.
QUICK = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0


class Backoff:
    """Doubles the pause after every slow attempt; starts again when there is something new to try."""

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
