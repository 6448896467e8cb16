"""Batching: when requests that wait are carried out. Several at once cost one replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

#: A deadline is near when less than this share of its time is left, or this many times the expected duration.
NEAR_SHARE, NEAR_DURATIONS = 0.1, 3.0


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
        return max(oldest, (oldest if last is None else last) + self.every.total_seconds())

    def is_near(self, deadline: float, now: float, duration: float) -> bool:
        """Whether a deadline is so near that its request must be carried out now."""
        return deadline - now < max(NEAR_SHARE * self.deadline.total_seconds(), NEAR_DURATIONS * duration)

    def due(
        self, waiting: Sequence[tuple[float, float]], last: float | None, now: float, duration: float
    ) -> str | None:
        """Why the requests that wait, given by when they came and their deadline, are due now; None if they are not."""
        if not waiting:
            return None
        if any(self.is_near(deadline, now, duration) for _, deadline in waiting):
            return "deadline"
        if self.size and len(waiting) >= self.size:
            return "size"
        oldest = min(came for came, _ in waiting)
        return "time" if self.next_start(oldest, last, now) <= now else None

    def expected(self, received: float, deadline: float, last: float | None, now: float, duration: float) -> float:
        """When a request is expected to be done: the same for everybody, so that it does not tell who is a member."""
        near = deadline - max(NEAR_SHARE * self.deadline.total_seconds(), NEAR_DURATIONS * duration)
        return max(min(self.next_start(received, last, now), near), now) + duration
