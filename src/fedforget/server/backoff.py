"""Backoff: pauses between attempts of a slow task."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

#: An attempt shorter than this many seconds needs no pause.
QUICK = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0


class Backoff:
    """Doubles the pause after every slow attempt; a new target resets it."""

    def __init__(self) -> None:
        self._tried: frozenset[str] = frozenset()
        self._pause = FIRST_PAUSE
        self._next_attempt = 0.0

    def allows(self, targets: Collection[str]) -> bool:
        """Whether it is time to try these targets."""
        if not self._tried.issuperset(targets):
            self._tried, self._pause, self._next_attempt = frozenset(targets), FIRST_PAUSE, 0.0
        return time.monotonic() >= self._next_attempt

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Measure the duration of an attempt."""
        started = time.monotonic()
        yield
        if time.monotonic() - started > QUICK:
            self._next_attempt = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
