"""Retry: when to try something again that failed."""

from __future__ import annotations

import time


class Retry:
    """Pauses after failures, each twice as long as the one before, up to ``longest`` seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self.failures = 0
        self._first, self._longest = first, longest
        self._next = 0.0

    @property
    def pause(self) -> float:
        """The seconds to wait after the failures so far."""
        return min(self._first * 2.0 ** min(self.failures - 1, 30), self._longest) if self.failures else 0.0

    def allows(self) -> bool:
        """Whether it is time to try."""
        return time.monotonic() >= self._next

    def failed(self) -> None:
        """It failed: it is tried again after a pause."""
        self.failures += 1
        self._next = time.monotonic() + self.pause

    def succeeded(self, rest: float = 0.0) -> None:
        """It succeeded; it is not done again for some seconds."""
        self.failures, self._next = 0, time.monotonic() + rest
