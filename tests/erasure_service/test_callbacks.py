"""Callbacks: only allowed, public receivers are called, over verified TLS, and none is lost."""

from __future__ import annotations

import base64
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service import callback_client
from fedforget.erasure_service.callback_address import CallbackError, is_public, validate
from fedforget.erasure_service.callback_client import CallbackClient
from fedforget.erasure_service.callback_sender import CallbackSender, RetryPolicy
from fedforget.erasure_service.callbacks import SCHEMA, CallbackStore, Outcome
from fedforget.erasure_service.state_file import open_state
from tests.erasure_service.receivers import Receiver, serving

HOST = "hooks.example.org"
PRIVATE = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "192.0.0.9",
    "198.18.0.1",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "2001:db8::1",
    "3fff::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:7f00:1::",
    "100::1",
    "4000::1",
]
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://hooks.example.org", "https://hooks.example.org/"),
        ("HTTPS://Hooks.Example.ORG.:443/a?b=c", "https://hooks.example.org/a?b=c"),
        ("https://hooks.example.org:8443?x", "https://hooks.example.org:8443/?x"),
        ("https://BÜCHER.example/x", "https://xn--bcher-kva.example/x"),
        ("https://xn--bcher-kva.example:444/", "https://xn--bcher-kva.example:444/"),
        ("https://10.0.0.7/", "https://10.0.0.7/"),
        ("http://[0:0::1]:8000/x", "http://[::1]:8000/x"),
    ],
)
def test_urls_of_allowed_hosts(url: str, normal: str) -> None:
    allowed = [HOST, "bücher.example", "10.0.0.7", "::1"]
    assert validate(url, allowed, ["10.0.0.7", "[::1]"]) == normal
    assert validate(normal, allowed, ["10.0.0.7", "[::1]"]) == normal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example.org/", "not https"),
        ("ftp://hooks.example.org/", "not https"),
        ("https://evil.org/", "not one of the allowed"),
        ("https://hooks.example.org.evil.org/", "not one of the allowed"),
        ("https://sub.hooks.example.org/", "not one of the allowed"),
        ("https://user:password@hooks.example.org/", "user name"),
        ("https://evil.org\\@hooks.example.org/", "no URL"),
        ("https://hooks.example.org/#part", "fragment"),
        ("https://hooks.example.org:0/", "port 0"),
        ("https://hooks.example.org:99999/", "port is invalid"),
        ("https://hooks.example.org:x/", "port is invalid"),
        ("https://hooks.example.org/a b", "no URL"),
        ("https://hooks.example.org/\r\nX: y", "no URL"),
        ("https://hooks.example.org\n/", "no URL"),
        ("https://hooks.example.org/ü", "no URL"),
        ("https://hooks.example.org/" + "a" * 3000, "no URL"),
        ("https:///a", "no URL"),
        ("//hooks.example.org/", "no URL"),
        ("", "no URL"),
        ("https://[::1%25eth0]/", "invalid"),
        ("https://a..b/", "invalid"),
        ("https://[::1/", "invalid"),
        *((f"https://{host}/", "is an address") for host in ("127.0.0.1", "[::1]", "2130706433", "127.1", "0x7f.1")),
        *((f"https://{host}/", "is an address") for host in ("１２７.0.0.1", "0177.0.0.1", "127.0.0.1.")),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(CallbackError, match=reason) as error:
        validate(url, [HOST, "127.0.0.1"])
    assert error.value.hint


@given(st.text() | st.from_regex(r"https?://[^/]*hooks.example.org[^/]*/.*"))
def test_no_text_gets_past_the_allowed_hosts(text: str) -> None:
    try:
        url = validate(text, [HOST])
    except CallbackError:
        return
    assert url.isascii()
    assert url.startswith((f"https://{HOST}/", f"https://{HOST}:"))


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_known(address: str) -> None:
    assert is_public(address)


def loopback_client(**options: Any) -> CallbackClient:
    """A client that finds the host on loopback and may call it there."""
    return CallbackClient([HOST], [HOST], resolve=lambda *_: ["127.0.0.1"], **options)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_with_one_private_address_is_not_called(address: str) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8", address]

    with pytest.raises(CallbackError, match="is not public"):
        CallbackClient([HOST], resolve=resolve).post(f"https://{HOST}/", b"", {})
    assert asked == [HOST]


def test_the_checked_address_is_called_though_the_name_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["8.8.8.8"], ["127.0.0.1"]]
    called: list[tuple[str, int]] = []

    class Recorded(socket.socket):
        def connect(self, address: Any) -> None:
            called.append(address)
            raise ConnectionRefusedError("not here")

    monkeypatch.setattr(callback_client.socket, "socket", Recorded)
    client = CallbackClient([HOST], resolve=lambda *_: answers.pop(0))
    with pytest.raises(ConnectionRefusedError):
        client.post(f"https://{HOST}/", b"", {})
    assert called == [("8.8.8.8", 443)]
    with pytest.raises(CallbackError, match=r"127\.0\.0\.1"):
        client.post(f"https://{HOST}/", b"", {})
    assert len(called) == 1


def test_redirects_are_not_followed_and_proxies_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(Receiver()) as target, serving(Receiver(307)) as receiver:
        receiver.location = f"http://127.0.0.1:{target.port}/"
        assert loopback_client().post(f"http://{HOST}:{receiver.port}/a?b", b"body", {"A": "b"}) == 307
    ((path, headers, body),) = receiver.received
    assert (path, body, headers["a"], headers["host"]) == ("/a?b", b"body", "b", f"{HOST}:{receiver.port}")
    assert target.received == []


def test_every_wait_ends() -> None:
    """A receiver that does not answer, and one that answers a byte at a time."""
    with serving(Receiver(0)) as silent, pytest.raises(TimeoutError):
        loopback_client(total_seconds=0.2).post(f"http://{HOST}:{silent.port}/", b"", {})
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            peer, _ = listening.accept()
            with peer:
                for _ in range(100):
                    time.sleep(0.02)
                    if _dead(peer):
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(TimeoutError, match=r"0\.3 seconds"):
            loopback_client(total_seconds=0.3).post(f"http://{HOST}:{listening.getsockname()[1]}/", b"", {})
        thread.join(5)
        assert not thread.is_alive()


def _dead(peer: socket.socket) -> bool:
    try:
        peer.sendall(b"H")
    except OSError:
        return True
    return False


def test_a_resolver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(callback_client.socket, "getaddrinfo", lambda *_, **__: release.wait(10) and [])
    with pytest.raises(TimeoutError, match="not resolved"):
        CallbackClient([HOST], connect_seconds=0.05).post(f"https://{HOST}/", b"", {})
    release.set()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's certificate for the host, and a client that trusts its authority."""
    pytest.importorskip("cryptography")
    from fedforget.flower.credentials import make_certificates

    files = make_certificates(tmp_path_factory.mktemp("tls"), [HOST])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    return server, ssl.create_default_context(cafile=str(files.authority))


def test_the_certificate_is_verified_for_the_name(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, trusting = contexts
    names = []
    server.sni_callback = lambda _, name, __: names.append(name)
    with serving(Receiver(), server) as receiver:
        assert loopback_client(context=trusting).post(f"https://{HOST}:{receiver.port}/", b"a", {}) == 202
        other = CallbackClient(["other.org"], ["other.org"], context=trusting, resolve=lambda *_: ["127.0.0.1"])
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            other.post(f"https://other.org:{receiver.port}/", b"b", {})
        with pytest.raises(ssl.SSLCertVerificationError, match="issuer"):
            loopback_client().post(f"https://{HOST}:{receiver.port}/", b"c", {})
    assert receiver.bodies() == [b"a"]
    assert names == [HOST, "other.org", HOST]


class Bench:
    """A sender on a clock that the tests move, without its thread."""

    def __init__(self, db: Any, client: CallbackClient | None = None, **options: Any) -> None:
        self.now = 1_000_000.0
        self.db = db
        self.store = CallbackStore(db)
        self.outcomes: list[Outcome] = []
        self.sender = CallbackSender(
            self.store,
            client or loopback_client(),
            sign=lambda body: b"signed " + body,
            domain="erasure.example.org",
            on_outcome=self.outcomes.append,
            clock=lambda: self.now,
            rng=random.Random(0),
            poll_seconds=0.02,
            **options,
        )

    def add(self, port: int, *bodies: bytes, reference: str = "r") -> None:
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
    assert bench.store.outcomes("r") == bench.store.outcomes() == {Outcome.DELIVERED: 1}
    assert bench.store.outcomes("another") == {}
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
    assert bench.store.outcomes() == {Outcome.GIVEN_UP: 1}


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
    assert bench.store.outcomes() == {Outcome.DELIVERED: 1}


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
        bench = Bench(own)
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
        assert bench.store.outcomes() == {Outcome.DELIVERED: 1}
        with pytest.raises(ConnectionAbortedError):
            bench.sender._client.post(f"http://{HOST}:{receiver.port}/", b"", {})


def test_closing_before_it_was_started(bench: Bench) -> None:
    assert bench.sender.close()
