"""Durations as people write them: 90d, 24h, 15m."""

from __future__ import annotations

import re
from datetime import timedelta

from fedforget.errors import ConfigError

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
#: About a hundred years: a longer duration is a mistake, and dates that far ahead may not exist.
LONGEST = timedelta(days=36_500)
_DURATION = re.compile(r"([0-9]{1,10})([smhdw])")


def parse_duration(text: str) -> timedelta:
    """The duration that a whole number and a unit name, such as 15m for fifteen minutes."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{text!r} is not a duration: it is not a whole number followed by one of {', '.join(UNITS)}.",
            "Examples: 90d, 24h, 15m.",
        )
    duration = timedelta(**{UNITS[found[2]]: int(found[1])}) if int(found[1]) <= LONGEST.total_seconds() else None
    if duration is None or duration > LONGEST:
        raise ConfigError(f"The duration {text!r} is longer than {LONGEST.days}d.", "Give a shorter one.")
    if not duration:
        raise ConfigError(f"The duration {text!r} is zero.", "Give at least 1s.")
    return duration
