"""Connections of a real server: who sends no request is disconnected, and too many calls get an answer that says so."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from fedforget.erasure_service.connections import Connection
from fedforget.erasure_service.serving import Server, server_config
from fedforget.erasure_service.settings import ServiceSettings

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Answers after a while; it takes no part in the start of the server."""
    if scope["type"] == "http":
        await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


@contextmanager
def listening() -> Iterator[tuple[str, int]]:
    ready = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        config = server_config(slow, ServiceSettings())
        config.lifespan = "off"
        server = Server(config, ready.set)
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        assert ready.wait(30)
        try:
            yield sock.getsockname()
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=5) as client:
        yield client


def rest(client: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    try:
        return b"".join(iter(lambda: client.recv(4096), b""))
    except ConnectionResetError:
        return b""


def drips(client: socket.socket) -> float:
    """Send a head a byte at a time; the seconds until the server closes the connection."""
    began = time.monotonic()
    with suppress(ConnectionError):
        for byte in HEAD * 100:
            client.sendall(bytes([byte]))
            time.sleep(0.02)
    return time.monotonic() - began


def test_a_connection_without_a_whole_head_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 0.2)
    with listening() as address:
        with connected(address) as silent:
            assert rest(silent) == b""
        with connected(address) as dripping:
            assert drips(dripping) < 5


def test_a_call_may_take_longer_and_the_next_head_has_the_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 0.2)
    with listening() as address, connected(address) as client:
        client.sendall(HEAD + b"\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
        client.sendall(HEAD + b"\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 204 ")
        client.sendall(HEAD)
        assert rest(client) == b""


def test_too_many_at_a_time_are_answered_with_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "most", 2)
    with listening() as address, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connected(address)).sendall(HEAD + b"\r\n")
        with connected(address) as third:
            third.sendall(HEAD + b"\r\n")
            head, _, body = rest(third).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"application/problem+json" in head
    assert b"x-request-id: " in head
    assert json.loads(body)["status"] == 503
