"""What holds for every HTTP call: an id, security headers, and limits of the body.

These are plain ASGI applications around another one. Wrap the whole application in them, not with its own
``add_middleware``: the answers to unexpected errors are made outside of that and need the headers too.

    app = CallId(SecurityHeaders(BodyLimit(app)))
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 1 << 20
BODY_SECONDS = 10.0
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
#: Only over TLS: browsers ignore it elsewhere.
TLS_HEADERS = {b"strict-transport-security": b"max-age=31536000"}


class CallId:
    """Gives each call an id: ``scope["state"]["call_id"]``, and X-Request-ID of the answer.

    A client's own X-Request-ID is removed: it could repeat another call's id or write into logs.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        call_id = secrets.token_hex(8)
        scope.setdefault("state", {})["call_id"] = call_id
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name.lower() != b"x-request-id"]
        return await self._app(scope, receive, _with_headers(send, {b"x-request-id": call_id.encode()}))


class SecurityHeaders:
    """Sets the security headers of every answer, whatever the application has set."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = HEADERS | TLS_HEADERS if scope.get("scheme") == "https" else HEADERS
        return await self._app(scope, receive, _with_headers(send, headers))


class BodyLimit:
    """Reads the body before the application is called: at most ``most`` bytes, within ``seconds``.

    A larger one is answered with 413 and a slower one with 408. So no handler waits for a client, and a limit is the
    same whether the client states a length or not.
    """

    def __init__(self, app: App, most: int = MOST_BYTES, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
        if any(not value.isdigit() for value in lengths):
            return await send_problem(send, 400, "Content-Length is not a number.")
        too_large = f"The body is larger than {self._most:,} bytes."
        if any(len(value) > 18 or int(value) > self._most for value in lengths):
            return await send_problem(send, 413, too_large)
        try:
            async with asyncio.timeout(self._seconds):
                body = await _read(receive, self._most)
        except TimeoutError:
            return await send_problem(send, 408, f"The body did not arrive within {self._seconds:g} seconds.")
        except _TooLargeError:
            return await send_problem(send, 413, too_large)
        return None if body is None else await self._app(scope, _replay(body, receive), send)


class _TooLargeError(Exception):
    """The body has more bytes than are accepted."""


async def _read(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if the client has gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > most:
            raise _TooLargeError
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body once, and then what the server says, such as that the client has gone."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send, headers: dict[bytes, bytes]) -> Send:
    """A ``send`` that replaces these headers of the answer."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in headers]
            message = {**message, "headers": [*own, *headers.items()]}
        await send(message)

    return with_headers


async def send_problem(send: Send, status: int, detail: str) -> None:
    """Answer with an error as problem details (RFC 9457), and close the connection, since the body is not read."""
    title = HTTPStatus(status).phrase
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
