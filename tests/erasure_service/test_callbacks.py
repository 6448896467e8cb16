"""Callbacks are signed, tried again and kept in order, and none is lost."""

from __future__ import annotations

import base64
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service.callback_client import CallbackClient
from fedforget.erasure_service.callback_sender import CallbackSender, RetryPolicy
from fedforget.erasure_service.callbacks import SCHEMA, CallbackStore, Outcome
from fedforget.erasure_service.state_file import open_state
from tests.erasure_service.receivers import HOST, Receiver, loopback_client, serving


class Bench:
    """A sender on a clock that the tests move, without its thread."""

    def __init__(self, db: Any, client: CallbackClient | None = None, **options: Any) -> None:
        self.now = 1_000_000.0
        self.db = db
        self.store = CallbackStore(db)
        self.outcomes: list[Outcome] = []
        self.sender = CallbackSender(
            self.store,
            client or loopback_client(80),
            sign=lambda body: b"signed " + body,
            domain="erasure.example.org",
            on_outcome=self.outcomes.append,
            clock=lambda: self.now,
            rng=random.Random(0),
            poll_seconds=0.02,
            **options,
        )

    def add(self, port: int, *bodies: bytes, reference: str = "r") -> None:
        self.sender._client = loopback_client(port)
        with self.db:
            for body in bodies:
                url = f"http://{HOST}:{port}/"
                self.store.add(reference, url, body, {"Content-Type": "application/json"}, self.now)

    def later(self, seconds: float) -> int:
        self.now += seconds
        return self.sender.send_due()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with closing(open_state(tmp_path, SCHEMA)) as db:
        yield Bench(db)


def test_a_delivered_callback_is_signed_and_leaves_only_a_count(bench: Bench, tmp_path: Path) -> None:
    with serving(Receiver()) as receiver:
        bench.add(receiver.port, b"the state of somebody")
        assert bench.later(0) == 1
    ((_, headers, body),) = receiver.received
    assert headers["x-opendsr-processor-domain"] == "erasure.example.org"
    assert base64.b64decode(headers["x-opendsr-signature"]) == b"signed " + body == b"signed the state of somebody"
    assert headers["content-type"] == "application/json"
    assert bench.store.waiting() == 0
    assert bench.store.counts("r") == bench.store.counts() == {Outcome.DELIVERED: 1}
    assert bench.store.counts("another") == {}
    for path in (tmp_path / "service").iterdir():
        assert b"somebody" not in path.read_bytes()
        assert HOST.encode() not in path.read_bytes()


def test_what_failed_is_tried_again_later_and_in_order(bench: Bench) -> None:
    with serving(Receiver(500, 404)) as receiver:
        bench.add(receiver.port, b"pending", b"completed")
        assert [bench.later(0), bench.later(2.4)] == [1, 0]
        assert bench.store.get(1).problem == "The receiver answered 500."
        assert [bench.later(2.6), bench.later(4.9)] == [1, 0]
        assert bench.later(5.1) == 2
    assert receiver.bodies() == [b"pending"] * 3 + [b"completed"]
    assert bench.outcomes == [Outcome.FAILED, Outcome.FAILED, Outcome.DELIVERED, Outcome.DELIVERED]


def test_one_request_does_not_hold_up_another(bench: Bench) -> None:
    with serving(Receiver(500)) as receiver:
        bench.add(receiver.port, b"a")
        bench.add(receiver.port, b"b", reference="s")
        assert bench.later(0) == 2
    assert bench.store.waiting("r") == 1
    assert bench.store.waiting("s") == 0


def test_403_ends_a_callback(bench: Bench) -> None:
    with serving(Receiver(403)) as receiver:
        bench.add(receiver.port, b"a")
        assert [bench.later(0), bench.later(100_000)] == [1, 0]
    assert bench.outcomes == [Outcome.REFUSED]
    assert bench.store.waiting() == 0


def test_it_is_given_up_in_the_end(bench: Bench) -> None:
    with serving(Receiver(*[302] * 1000)) as receiver:
        bench.add(receiver.port, b"a")
        for _ in range(100):
            bench.later(3600)
    assert bench.outcomes[-1] is Outcome.GIVEN_UP
    assert len(bench.outcomes) == 72  # once an hour for three days
    assert bench.store.counts() == {Outcome.GIVEN_UP: 1}


def test_a_host_that_is_down_is_left_alone_for_all_requests(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for number in range(20):
        bench.add(port, b"a", reference=str(number))
    assert [bench.later(0), bench.later(1), bench.later(4)] == [1, 0, 1]


def test_a_clock_that_was_ahead_delays_nothing(bench: Bench) -> None:
    with serving(Receiver(500)) as receiver:
        bench.add(receiver.port, b"a")
        assert [bench.later(0), bench.later(-1_000_000)] == [1, 1]


def test_what_goes_wrong_with_one_callback_does_not_stop_others(bench: Bench) -> None:
    with serving(Receiver()) as receiver:
        with bench.db:
            bench.store.add("bad", "no url at all", b"a", {}, bench.now)
            bench.store.add("bad", f"http://{HOST}:{receiver.port}/", b"b", {"A": "b\r\nC: d"}, bench.now)
        bench.add(receiver.port, b"c")
        bench.later(0)
        bench.later(10)
    assert receiver.bodies() == [b"c"]
    assert bench.store.waiting("bad") == 2
    assert bench.store.counts() == {Outcome.DELIVERED: 1}


@given(st.integers(1, 5000), st.integers(0, 100))
def test_pauses_grow_up_to_the_longest(attempts: int, seed: int) -> None:
    delay = RetryPolicy(5, 3600).delay(attempts, random.Random(seed))
    full = min(3600, 5 * 2 ** (attempts - 1))
    assert full / 2 <= delay <= full


def test_rows_outlive_a_kill(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from fedforget.erasure_service.callbacks import SCHEMA, CallbackStore
from fedforget.erasure_service.state_file import open_state
db = open_state(Path({str(tmp_path)!r}), SCHEMA)
with db:
    CallbackStore(db).add("r", "https://{HOST}/", b"kept", {{"A": "b"}}, 5.0)
CallbackStore(db).add("r", "https://{HOST}/", b"not committed", None, 6.0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with closing(open_state(tmp_path, SCHEMA)) as db:
        store = CallbackStore(db)
        ((number, due, _),) = store.next_ones()
        callback = store.get(number)
    assert (callback.body, callback.headers, due, callback.attempts) == (b"kept", {"A": "b"}, 5.0, 0)


def run_threads(benches: Sequence[Bench], stack: ExitStack) -> None:
    for bench in benches:
        bench.sender.start()
        stack.callback(bench.sender.close)


def test_the_thread_delivers_and_stops_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        own, other = (stack.enter_context(closing(open_state(tmp_path, SCHEMA))) for _ in range(2))
        receiver = stack.enter_context(serving(Receiver(202, 0)))
        bench = Bench(own, loopback_client(receiver.port))
        run_threads([bench], stack)
        with other:
            CallbackStore(other).add("r", f"http://{HOST}:{receiver.port}/", b"a", {}, bench.now)
        bench.sender.wake()
        assert receiver.got_one.wait(5)
        receiver.got_one.clear()
        with other:
            CallbackStore(other).add("r", f"http://{HOST}:{receiver.port}/", b"never answered", {}, bench.now)
        assert receiver.got_one.wait(5)
        started = time.monotonic()
        assert bench.sender.close()
        assert time.monotonic() - started < 2
        assert bench.store.waiting() == 1
        assert bench.store.counts() == {Outcome.DELIVERED: 1}
        with pytest.raises(ConnectionAbortedError):
            bench.sender._client.post(f"http://{HOST}:{receiver.port}/", b"", {})


def test_closing_before_it_was_started(bench: Bench) -> None:
    assert bench.sender.close()
