"""Batching: when requests that wait are carried out. Several at once cost one replay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta

from fedforget.erasure_service.waiting import Waiting

#: A deadline is near when less than this share of its time is left, or this many times the expected duration.
NEAR_SHARE, NEAR_DURATIONS = 0.1, 3.0
#: Seconds by which clocks may differ.
SKEW = 300.0


@dataclass(frozen=True)
class Batching:
    """Carry requests out ``every`` so often, or daily ``at`` an hour, or when ``size`` of them wait.

    With none of these each request is carried out at once. Whatever is set, requests are carried out before their
    ``deadline``, counted from when they were submitted.
    """

    every: timedelta = timedelta(0)
    at: time | None = None
    size: int = 0
    deadline: timedelta = timedelta(days=30)

    def next_start(self, oldest: float, last: float | None, now: float) -> float:
        """When a request that came at ``oldest`` is carried out at the latest; the last batch began at ``last``."""
        if self.at is not None:
            local = datetime.fromtimestamp(oldest).astimezone()
            today = local.replace(hour=self.at.hour, minute=self.at.minute, second=0, microsecond=0)
            return (today if today >= local else today + timedelta(days=1)).timestamp()
        if not self.every:
            return oldest if not self.size else float("inf")
        begun = oldest if last is None or last > now else last  # a later one was begun by a clock that was wrong
        return max(oldest, begun + self.every.total_seconds())

    def margin(self, duration: float) -> float:
        """The seconds before a deadline from which on it is near."""
        return max(NEAR_SHARE * self.deadline.total_seconds(), NEAR_DURATIONS * duration)

    def is_near(self, deadline: float, now: float, duration: float) -> bool:
        """Whether a deadline is so near that its request must be carried out now."""
        return deadline - now < self.margin(duration)

    def due(self, waiting: Waiting, last: float | None, now: float, duration: float) -> str | None:
        """Why the requests that wait are due now; None if they are not.

        Those that all came long after now, by a clock that was wrong, are due at once.
        """
        if self.is_near(waiting.deadline, now, duration):
            return "deadline"
        if self.size and waiting.count >= self.size:
            return "size"
        if waiting.received > now + SKEW:
            return "time"
        return "time" if self.next_start(waiting.received, last, now) <= now else None

    def latest_start(self, received: float, deadline: float, last: float | None, now: float, duration: float) -> float:
        """When a request is carried out at the latest, if nothing else is: the same for everybody."""
        return max(min(self.next_start(received, last, now), deadline - self.margin(duration)), now)
