"""Rate limits on a clock that the tests move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service.rates import Failures, Rates, client_key
from fedforget.errors import ConfigError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_the_rate() -> None:
    clock = Clock()
    rates = Rates(per_second=2, burst=3, clock=clock)
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rates.take("b") == 0
    clock.now += 0.5
    assert [rates.take("a"), rates.take("a")] == [0, 0.5]
    clock.now += 3600
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


@given(st.lists(st.floats(0, 2), max_size=60), st.floats(0.1, 20), st.integers(1, 10))
def test_never_more_than_the_burst_and_what_was_refilled(pauses: list[float], per_second: float, burst: int) -> None:
    clock = Clock()
    rates = Rates(per_second, burst, clock)
    allowed = 0
    for pause in pauses:
        clock.now += pause
        wait = rates.take("a")
        allowed += wait == 0
        assert wait <= 1 / per_second + 1e-6
        assert allowed <= burst + per_second * (clock.now - 1000) + 1e-6


@given(st.floats(0.1, 20), st.integers(1, 5))
def test_the_wait_that_is_told_is_enough(per_second: float, burst: int) -> None:
    clock = Clock()
    rates = Rates(per_second, burst, clock)
    while not (wait := rates.take("a")):
        pass
    clock.now += wait + 1e-6
    assert rates.take("a") == 0


def test_limits_that_let_nobody_call_are_refused() -> None:
    with pytest.raises(ConfigError, match="let nobody call"):
        Rates(per_second=0, burst=1)


def test_failures_make_an_address_wait() -> None:
    clock = Clock()
    failures = Failures(limit=3, window=60, clock=clock)
    for _ in range(3):
        assert failures.wait("192.0.2.1") == 0
        failures.add("192.0.2.1")
        clock.now += 10
    assert failures.wait("192.0.2.1") == 30
    assert failures.wait("192.0.2.2") == 0
    clock.now += 30
    assert failures.wait("192.0.2.1") == 0
    failures.add("192.0.2.1")
    assert failures.wait("192.0.2.1") == 10


def test_an_ipv6_client_is_its_network() -> None:
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff") != client_key("2001:db8:0:1::1")
    assert client_key("::ffff:192.0.2.1") == client_key("192.0.2.1")
    assert client_key("testclient") == "testclient"


def test_memory_is_bounded_and_the_oldest_is_forgotten() -> None:
    failures, rates = Failures(limit=1, most=10), Rates(per_second=0.001, burst=1, most=10)
    for number in range(100):
        failures.add(f"client {number}")
        rates.take(f"client {number}")
    assert len(failures._times) == len(rates._buckets) == 10
    assert failures.wait("client 0") == 0 < failures.wait("client 99")
    assert rates.take("client 0") == 0 < rates.take("client 99")
