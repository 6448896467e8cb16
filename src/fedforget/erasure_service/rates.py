"""Limits of how often a holder may call, and of how often an address may fail to authenticate."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock

from fedforget.errors import ConfigError

#: Keys that are remembered; the one used longest ago is forgotten first, so memory is bounded.
MOST_KEYS = 10_000

Clock = Callable[[], float]


class Rates:
    """A token bucket for each key: ``burst`` calls at once, refilled by ``per_second``."""

    def __init__(self, per_second: float, burst: int, clock: Clock = time.monotonic, most: int = MOST_KEYS) -> None:
        if per_second <= 0 or burst < 1:
            raise ConfigError(f"{per_second} calls per second and {burst} at once let nobody call.", "Allow more.")
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, key: str) -> float:
        """Count a call: 0 if it is allowed, otherwise the seconds until the next one is."""
        with self._lock:
            now = self._clock()
            left, since = self._buckets.pop(key, (float(self._burst), now))
            left = min(self._burst, left + (now - since) * self._per_second)
            allowed = left >= 1
            self._buckets[key] = (left - allowed, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
            return 0.0 if allowed else (1 - left) / self._per_second


class Failures:
    """Failed authentications of client addresses: after ``limit`` within ``window`` seconds, an address must wait.

    Ask ``wait`` only about a token that is not valid: whoever shares the address and has a valid one need not wait.
    """

    def __init__(
        self, limit: int = 10, window: float = 60.0, clock: Clock = time.monotonic, most: int = MOST_KEYS
    ) -> None:
        self._limit = limit
        self._window = window
        self._clock = clock
        self._most = most
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = Lock()

    def wait(self, address: str) -> float:
        """The seconds until this address may try again; 0 if it may now."""
        with self._lock:
            times = self._times.get(client_key(address))
            if times is None or len(times) < self._limit:
                return 0.0
            return max(0.0, times[0] + self._window - self._clock())

    def add(self, address: str) -> None:
        """Count a failure."""
        key = client_key(address)
        with self._lock:
            times = self._times.setdefault(key, deque(maxlen=self._limit))
            times.append(self._clock())
            self._times.move_to_end(key)
            if len(self._times) > self._most:
                self._times.popitem(last=False)


def client_key(address: str) -> str:
    """One key for all addresses of a client: an IPv6 client usually has a /64 network and may choose any of it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), 64), strict=False))
