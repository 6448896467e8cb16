"""Moment: a time as a page shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from fedforget.erasure_service.opendsr import rfc3339

#: Seconds of a unit, and the count from which on it is used.
UNITS = ((86400.0, 2.0, "day"), (3600.0, 2.0, "hour"), (60.0, 2.0, "minute"))


@dataclass(frozen=True)
class Moment:
    """A time in UTC: for machines, for people, and seen from now."""

    iso: str
    absolute: str
    relative: str

    @classmethod
    def of(cls, seconds: float, now: float | None = None) -> Moment:
        """The moment that is so many seconds after 1970."""
        absolute = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return cls(rfc3339(seconds), absolute, relative(seconds - (time.time() if now is None else now)))

    @classmethod
    def parse(cls, text: str, now: float | None = None) -> Moment | None:
        """The moment in a text in ISO 8601; None if it has none."""
        try:
            return cls.of(datetime.fromisoformat(text).timestamp(), now)
        except ValueError:
            return None


def relative(seconds: float) -> str:
    """A time seen from now, such as "in 3 days"."""
    text = span(abs(seconds))
    if abs(seconds) < 1:
        return "now"
    return f"in {text}" if seconds > 0 else f"{text} ago"


def span(seconds: float) -> str:
    """A duration, rounded down to a unit that is easy to read."""
    for size, least, name in UNITS:
        if seconds >= least * size:
            return f"{int(seconds // size)} {name}s"
    whole = int(seconds)
    return "1 second" if whole == 1 else f"{whole} seconds"
