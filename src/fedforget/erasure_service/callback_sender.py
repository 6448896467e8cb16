"""CallbackSender: the thread that delivers callbacks, and tries again what failed."""

from __future__ import annotations

import base64
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fedforget.erasure_service.callback_client import CallbackClient
from fedforget.erasure_service.callbacks import Callback, CallbackStore, Outcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryPolicy:
    """When a callback is tried again: after ``first`` seconds, then twice as long each time, at most ``longest``.

    After ``give_up`` seconds since it was added it is not tried again.
    """

    first: float = 5.0
    longest: float = 3600.0
    give_up: float = 3 * 86_400.0

    def delay(self, attempts: int, rng: random.Random) -> float:
        """The pause after a number of attempts: half of it is random, so that receivers are not called all at once."""
        full = min(self.longest, self.first * 2.0 ** min(attempts - 1, 60))
        return full * (0.5 + 0.5 * rng.random())


class CallbackSender:
    """Delivers at least once: if the process is killed after an answer, the same callback is sent again.

    One callback is sent at a time. A host that cannot be reached is left alone for a while, so that it does not hold
    up the others. ``store`` needs a connection of its own. ``on_outcome`` is called after every attempt, for metrics.
    """

    def __init__(
        self,
        store: CallbackStore,
        client: CallbackClient,
        sign: Callable[[bytes], bytes],
        domain: str,
        *,
        policy: RetryPolicy | None = None,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        poll_seconds: float = 1.0,
    ) -> None:
        self._store = store
        self._client = client
        self._sign = sign
        self._domain = domain
        self._policy = policy or RetryPolicy()
        self._on_outcome = on_outcome
        self._clock = clock
        self._rng = rng or random.Random()
        self._poll_seconds = poll_seconds
        #: Hosts that could not be reached: how often in a row, and until when they are left alone.
        self._unreachable: dict[str, tuple[int, float]] = {}
        self._deleted = True  # a process before this one may have been killed between deleting and scrubbing
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="callbacks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for callbacks now, such as after a commit; otherwise the thread looks every ``poll_seconds``."""
        self._wake.set()

    def close(self, timeout: float = 10.0) -> bool:
        """Stop, ending a call in progress; its callback stays in the store. Whether the thread has stopped."""
        self._closed.set()
        self._wake.set()
        self._client.close()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def send_due(self) -> int:
        """Send everything that is due now, and return the number of attempts."""
        attempts = 0
        while not self._closed.is_set() and (number := self._next(self._store.next_ones())) is not None:
            self._attempt(self._store.get(number))
            attempts += 1
        if self._deleted and not self._closed.is_set():
            self._deleted = not self._store.scrub()
        return attempts

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            try:
                self.send_due()
            except Exception:  # such as a full disk: the thread must live on, and try again
                _log.exception("Callbacks cannot be sent now.")
                self._closed.wait(self._poll_seconds)
            self._wake.wait(self._poll_seconds)

    def _next(self, waiting: Sequence[tuple[int, float, str]]) -> int | None:
        """The callback to send now. Times further ahead than any pause come from a clock that was wrong."""
        now = self._clock()
        for number, due, url in waiting:
            until = self._unreachable.get(_host(url), (0, 0.0))[1]
            if not any(now < time <= now + self._policy.longest for time in (due, until)):
                return number
        return None

    def _attempt(self, callback: Callback) -> None:
        host = _host(callback.url)
        try:
            signature = base64.b64encode(self._sign(callback.body)).decode()
            signed = {"X-OpenDSR-Processor-Domain": self._domain, "X-OpenDSR-Signature": signature}
            status = self._client.post(callback.url, callback.body, {**callback.headers, **signed})
        except Exception as error:  # whatever happens to one callback, the others are sent
            if self._closed.is_set():
                return
            failures = self._unreachable.get(host, (0, 0.0))[0] + 1
            self._unreachable[host] = (failures, self._clock() + self._policy.delay(failures, self._rng))
            self._failed(callback, f"{type(error).__name__}: {error}")
            return
        self._unreachable.pop(host, None)
        if 200 <= status < 300:
            self._end(callback, Outcome.DELIVERED)
        elif status == 403:
            self._end(callback, Outcome.REFUSED)
        else:
            self._failed(callback, f"The receiver answered {status}.")

    def _failed(self, callback: Callback, problem: str) -> None:
        now = self._clock()
        if now - callback.created >= self._policy.give_up:
            self._end(callback, Outcome.GIVEN_UP)
            return
        self._store.postpone(callback, now + self._policy.delay(callback.attempts + 1, self._rng), problem)
        self._tell(Outcome.FAILED)

    def _end(self, callback: Callback, outcome: Outcome) -> None:
        self._store.end(callback, outcome)
        self._deleted = True
        self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        with suppress(Exception):  # metrics must not stop callbacks
            self._on_outcome(outcome)


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]
