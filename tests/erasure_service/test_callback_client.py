"""A callback goes to a checked address over verified TLS, and every wait ends."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import Any

import pytest

from fedforget.erasure_service import callback_client
from fedforget.erasure_service.callback_address import CallbackError
from fedforget.erasure_service.callback_client import CallbackClient
from tests.erasure_service.receivers import HOST, PRIVATE, Receiver, loopback_client, serving


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
        assert loopback_client(receiver.port).post(f"http://{HOST}:{receiver.port}/a?b", b"body", {"A": "b"}) == 307
    ((path, headers, body),) = receiver.received
    assert (path, body, headers["a"], headers["host"]) == ("/a?b", b"body", "b", f"{HOST}:{receiver.port}")
    assert target.received == []


def test_every_wait_ends() -> None:
    """A receiver that does not answer, and one that answers a byte at a time."""
    with serving(Receiver(0)) as silent, pytest.raises(TimeoutError):
        loopback_client(silent.port, total_seconds=0.2).post(f"http://{HOST}:{silent.port}/", b"", {})
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
        port = listening.getsockname()[1]
        with pytest.raises(TimeoutError, match=r"0\.3 seconds"):
            loopback_client(port, total_seconds=0.3).post(f"http://{HOST}:{port}/", b"", {})
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
        assert (
            loopback_client(receiver.port, context=trusting).post(f"https://{HOST}:{receiver.port}/", b"a", {}) == 202
        )
        others = [f"other.org:{receiver.port}"]
        other = CallbackClient(others, others, context=trusting, resolve=lambda *_: ["127.0.0.1"])
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            other.post(f"https://other.org:{receiver.port}/", b"b", {})
        with pytest.raises(ssl.SSLCertVerificationError, match="issuer"):
            loopback_client(receiver.port).post(f"https://{HOST}:{receiver.port}/", b"c", {})
    assert receiver.bodies() == [b"a"]
    assert names == [HOST, "other.org", HOST]
