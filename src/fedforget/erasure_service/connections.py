"""Connection: HTTP over one connection, with a limit of time for the heads of requests and one of calls at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from fedforget.erasure_service.middleware import CallId, Receive, Scope, SecurityHeaders, Send, send_problem


class Connection(H11Protocol):
    """Uvicorn's protocol, but a connection on which no complete head of a request comes in time is closed.

    Uvicorn itself waits for a head as long as the client likes, and answers in plain text if there are too many calls.
    """

    #: Seconds for the head of a request, since the connection was made or since the first byte of a later head.
    head_seconds = 10.0
    #: Connections, and calls at a time; calls beyond that are answered with 503.
    most = 512
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._inner: Any = self.app
        self.app = self._limited
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        self._expect_head()
        super().data_received(data)
        if self._answers:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _answers(self) -> bool:
        """Whether a request is being answered."""
        return not getattr(self.cycle, "response_complete", True)  # None before the first request

    def _expect_head(self) -> None:
        if self._timer is None and not self._answers:
            self._timer = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        busy = max(len(self.connections), len(self.tasks)) > self.most
        await (_BUSY if busy else self._inner)(scope, receive, send)


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    await send_problem(send, 503, "Too many calls at a time. Try again in some seconds.")


_BUSY = CallId(SecurityHeaders(_busy))
