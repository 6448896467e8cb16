"""Limits, headers and ids of calls: on plain messages, and on a real server with slow and large clients."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fedforget.erasure_service.middleware import HEADERS, App, BodyLimit, CallId, Message, SecurityHeaders


def call(app: App, *received: Message, headers: dict[str, str] | None = None, scheme: str = "http") -> Any:
    """The status, headers and body that an application answers; None if it does not answer."""
    sent: list[Message] = []
    waiting = list(received or [{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        if not waiting:
            await asyncio.sleep(3600)
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    asyncio.run(app({"type": "http", "scheme": scheme, "headers": raw}, receive, send))  # type: ignore[arg-type]
    if not sent:
        return None
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert len(answered) == len(sent[0]["headers"])
    return sent[0]["status"], answered, b"".join(message["body"] for message in sent[1:])


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body; its own headers are wrong on purpose."""
    body = (await receive())["body"]
    headers = [(b"Cache-Control", b"public"), (b"x-seen", dict(scope["headers"]).get(b"x-request-id", b"none"))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body + scope.get("state", {}).get("call_id", "").encode()})


def part(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_parts_arrives_whole() -> None:
    assert call(BodyLimit(echo, most=6), part(b"abc", True), part(b"def", False))[2] == b"abcdef"


@pytest.mark.parametrize(
    ("received", "headers"),
    [
        ([part(b"", True)], {"content-length": "7"}),
        ([part(b"", True)], {"content-length": "9" * 5000}),
        ([part(b"abcd", True), part(b"efg", False)], {}),
        ([part(b"abcd", True), part(b"efg", True)], {"content-length": "4"}),
    ],
)
def test_a_large_body_is_refused_whatever_length_is_stated(received: list[Message], headers: dict[str, str]) -> None:
    status, answered, body = call(BodyLimit(echo, most=6), *received, headers=headers)
    assert status == 413
    assert answered["content-type"] == "application/problem+json"
    assert int(answered["content-length"]) == len(body)
    assert json.loads(body)["status"] == 413
    assert "6 bytes" in json.loads(body)["detail"]


def test_a_length_that_is_no_number_is_refused() -> None:
    assert call(BodyLimit(echo), part(b"", False), headers={"content-length": "-1"})[0] == 400


def test_a_slow_body_is_refused() -> None:
    status, answered, body = call(BodyLimit(echo, seconds=0.01), part(b"a", True))
    assert (status, answered["connection"]) == (408, "close")
    assert "0.01 seconds" in json.loads(body)["detail"]


def test_a_client_that_has_gone_gets_no_answer() -> None:
    assert call(BodyLimit(echo), part(b"a", True), {"type": "http.disconnect"}) is None


def test_the_application_still_learns_that_a_client_has_gone() -> None:
    async def listens(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert await receive() == {"type": "http.disconnect"}
        await echo(scope, lambda: asyncio.sleep(0, {"body": b"seen"}), send)

    assert call(BodyLimit(listens), part(b"", False), {"type": "http.disconnect"})[2] == b"seen"


def test_security_headers_replace_the_application_s() -> None:
    _, answered, _ = call(SecurityHeaders(echo))
    assert {name.decode(): value.decode() for name, value in HEADERS.items()}.items() <= answered.items()
    assert answered["cache-control"] == "no-store"
    assert "Cache-Control" not in answered
    assert "strict-transport-security" not in answered
    assert call(SecurityHeaders(echo), scheme="https")[1]["strict-transport-security"].startswith("max-age=")


def test_every_call_has_its_own_id_and_a_client_s_is_not_seen() -> None:
    first, second = (call(CallId(echo), headers={"X-Request-ID": "chosen"}) for _ in range(2))
    assert first[1]["x-seen"] == "none"
    assert first[1]["x-request-id"] == first[2].decode() != second[2].decode()
    assert len(first[2]) == 16


def test_other_scopes_pass_through() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["seen"] = True

    scope: dict[str, Any] = {"type": "lifespan"}
    asyncio.run(CallId(SecurityHeaders(BodyLimit(app)))(scope, None, None))  # type: ignore[arg-type]
    assert scope == {"type": "lifespan", "seen": True}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A real server with a FastAPI application in all layers."""
    fastapi = pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    api = fastapi.FastAPI()

    @api.post("/fails")
    def fails(body: dict[str, Any]) -> None:
        raise RuntimeError("unexpected")

    app = CallId(SecurityHeaders(BodyLimit(api, most=1000, seconds=0.3)))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        assert server.started
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def talk(port: int, data: bytes) -> str:
    """All that the server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(data)
        return b"".join(iter(lambda: client.recv(4096), b"")).decode()


def test_a_real_server_refuses_slow_and_large_bodies_and_closes(port: int) -> None:
    head = "POST /fails HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    slow = talk(port, f"{head}Content-Length: 20\r\n\r\n{{".encode())
    assert slow.startswith("HTTP/1.1 408 ")
    large = talk(port, f"{head}Content-Length: 2000\r\n\r\n".encode())
    assert large.startswith("HTTP/1.1 413 ")
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n3e9\r\n{' ' * 1001}\r\n".encode()
    assert talk(port, chunked).startswith("HTTP/1.1 413 ")


def test_also_unexpected_errors_have_the_headers(port: int) -> None:
    head = "POST /fails HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
    answer = talk(port, f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
    assert answer.startswith("HTTP/1.1 500 ")
    assert "x-request-id: " in answer
    assert "content-security-policy: default-src 'none'" in answer
