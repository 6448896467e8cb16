"""Backoff: what takes long and fails is tried less and less often, and at once when there is something new."""

from __future__ import annotations

import pytest

from fedforget.server import backoff
from fedforget.server.backoff import FIRST_PAUSE, LONGEST_PAUSE, Backoff


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time, to be set by hand."""
    now = [1000.0]
    monkeypatch.setattr(backoff.time, "monotonic", lambda: now[0])
    return now


def attempt(tried: Backoff, clock: list[float], seconds: float) -> None:
    with tried.spent():
        clock[0] += seconds


def test_what_is_over_quickly_may_be_tried_again_at_once(clock):
    tried = Backoff()
    for _ in range(5):
        assert tried.allows(["a"])
        attempt(tried, clock, 0.1)


def test_the_pause_after_what_takes_long_doubles_up_to_an_hour(clock):
    tried = Backoff()
    pause = FIRST_PAUSE
    for _ in range(10):
        assert tried.allows(["a"])
        attempt(tried, clock, 120)
        clock[0] += pause - 1
        assert not tried.allows(["a"])
        clock[0] += 1
        pause = min(2 * pause, LONGEST_PAUSE)
    assert pause == LONGEST_PAUSE


def test_something_new_is_tried_at_once_and_something_less_is_nothing_new(clock):
    tried = Backoff()
    assert tried.allows(["a", "b"])
    attempt(tried, clock, 120)
    assert not tried.allows(["b"])
    assert tried.allows(["b", "c"])
