"""Durations are read as written; what is no duration is refused with the reason."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service.durations import LONGEST, UNITS, parse_duration
from fedforget.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90d", timedelta(days=90)),
        ("24h", timedelta(days=1)),
        ("15m", timedelta(minutes=15)),
        (" 1s ", timedelta(seconds=1)),
        ("2w", timedelta(days=14)),
        ("36500d", LONGEST),
    ],
)
def test_a_number_and_a_unit(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "d", "90", "-1d", "1.5h", "1y", "0s", "36501d", "9999999999w", "99999999999d", "1d1h", "１d", "1 d"]
)
def test_anything_else_is_refused_and_named(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_duration(text)
    assert repr(text) in error.value.problem
    assert error.value.hint


@given(st.integers(1, 36_500), st.sampled_from(sorted(UNITS)))
def test_the_unit_is_the_one_named(number: int, unit: str) -> None:
    duration = timedelta(**{UNITS[unit]: number})
    if duration <= LONGEST:
        assert parse_duration(f"{number}{unit}") == duration


@given(st.text(max_size=12))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    with suppress(ConfigError):
        assert timedelta() < parse_duration(text) <= LONGEST
