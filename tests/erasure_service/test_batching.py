"""When requests that wait are carried out."""

from __future__ import annotations

from datetime import datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service.batching import Batching
from fedforget.erasure_service.waiting import Waiting

HOUR = 3600.0
DAY = 24 * HOUR
NOW = datetime(2026, 11, 1, 12, 0).timestamp()
FAR = NOW + 30 * DAY


def test_without_a_policy_a_request_is_carried_out_at_once():
    assert Batching().due(Waiting(1, NOW, FAR), None, NOW, 1.0) == "time"


def test_every_counts_from_the_last_batch():
    batching = Batching(every=timedelta(hours=24))
    assert batching.due(Waiting(1, NOW, FAR), NOW - 23 * HOUR, NOW, 1.0) is None
    assert batching.due(Waiting(1, NOW - HOUR, FAR), NOW - 25 * HOUR, NOW, 1.0) == "time"


def test_the_first_batch_collects_for_a_whole_period():
    batching = Batching(every=timedelta(hours=24))
    assert batching.due(Waiting(1, NOW, FAR), None, NOW + 23 * HOUR, 1.0) is None
    assert batching.due(Waiting(1, NOW, FAR), None, NOW + 24 * HOUR, 1.0) == "time"


def test_at_an_hour_of_the_day():
    batching = Batching(at=time(2, 30))
    night = datetime(2026, 11, 2, 2, 30).timestamp()
    assert batching.due(Waiting(1, NOW, FAR), NOW - HOUR, night - 1, 1.0) is None
    assert batching.due(Waiting(1, NOW, FAR), NOW - HOUR, night, 1.0) == "time"
    assert batching.next_start(night + 1, None, night + 1) == datetime(2026, 11, 3, 2, 30).timestamp()


def test_a_number_of_requests_starts_a_batch():
    batching = Batching(every=timedelta(days=7), size=3)
    assert batching.due(Waiting(2, NOW, FAR), NOW, NOW, 1.0) is None
    assert batching.due(Waiting(3, NOW, FAR), NOW, NOW, 1.0) == "size"


def test_with_a_number_alone_requests_wait_for_it_until_the_deadline_is_near():
    batching = Batching(size=3)
    assert batching.due(Waiting(2, NOW, FAR), NOW, NOW + 20 * DAY, 1.0) is None
    assert batching.due(Waiting(2, NOW, FAR), NOW, NOW + 27.1 * DAY, 1.0) == "deadline"


def test_a_near_deadline_comes_before_everything_else():
    batching = Batching(every=timedelta(days=365))
    assert batching.due(Waiting(2, NOW, NOW + DAY), NOW, NOW, 1.0) == "deadline"
    assert batching.due(Waiting(1, NOW, NOW + 10 * DAY), NOW, NOW, 1.0) is None
    assert batching.due(Waiting(1, NOW, NOW + 10 * DAY), NOW, NOW, 4 * DAY) == "deadline", (
        "a long erasure begins earlier"
    )


@pytest.mark.parametrize("batching", [Batching(), Batching(every=timedelta(hours=24)), Batching(at=time(2, 30))])
def test_what_came_by_a_clock_that_was_ahead_is_not_held_up(batching):
    assert batching.due(Waiting(1, NOW + 365 * DAY, FAR + 365 * DAY), None, NOW, 1.0) == "time"


def test_a_batch_that_was_begun_by_a_clock_that_was_ahead_holds_nothing_up():
    batching = Batching(every=timedelta(hours=24))
    assert batching.due(Waiting(1, NOW - 23 * HOUR, FAR), NOW + 365 * DAY, NOW, 1.0) is None
    assert batching.due(Waiting(1, NOW - 24 * HOUR, FAR), NOW + 365 * DAY, NOW, 1.0) == "time"


@given(
    every=st.floats(0, 400 * DAY),
    hour=st.none() | st.times(),
    size=st.integers(0, 5),
    last=st.none() | st.floats(-100 * DAY, 0),
    duration=st.floats(0, DAY),
    waits=st.floats(0, 40 * DAY),
)
def test_nothing_waits_until_its_deadline(every, hour, size, last, duration, waits):
    batching = Batching(timedelta(seconds=every), hour, size)
    begun = None if last is None else NOW + last
    start = next(
        (
            NOW + step * HOUR
            for step in range(31 * 24)
            if batching.due(Waiting(1, NOW, FAR), begun, NOW + step * HOUR, duration) is not None
        ),
        None,
    )
    assert start is not None
    assert start + duration <= FAR


@given(st.floats(0, 400 * DAY), st.integers(0, 5), st.floats(0, DAY))
def test_the_expected_time_is_finite_and_not_in_the_past(every, size, duration):
    batching = Batching(timedelta(seconds=every), None, size)
    expected = batching.latest_start(NOW, FAR, None, NOW, duration) + duration
    assert NOW + duration <= expected <= FAR


@pytest.mark.parametrize("deadline", [-DAY, 0.0, DAY])
def test_a_deadline_that_is_over_or_near_is_expected_now(deadline):
    assert Batching(every=timedelta(days=5)).latest_start(NOW, NOW + deadline, None, NOW, 10.0) == NOW
