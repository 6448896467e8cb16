"""CallRecorder: an ASGI application around another one that writes every call to the audit log."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from fedforget.erasure_service.call_log import Call, CallLog
from fedforget.erasure_service.middleware import App, Message, Receive, Scope, Send, send_problem
from fedforget.errors import RunError

#: Methods that change nothing. Their calls need not be on disk before the answer.
READS = {"GET", "HEAD", "OPTIONS"}
LONGEST = 128


class CallRecorder:
    """Records each call as its answer begins; one that changed something is on disk before its answer is sent.

    It reads what others put into ``scope["state"]``: ``call_id`` (by ``CallId``, around this), ``holder`` (once the
    caller is known), ``reference`` (a short hash of the erasure request, by the handler) and, where the framework does
    not name the route, ``route`` (its template).
    """

    def __init__(self, app: App, log: CallLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, started = datetime.now(UTC), time.perf_counter()
        answered = failed = False

        def call(status: int) -> Call:
            return _call(scope, began, status, 1000 * (time.perf_counter() - started))

        async def recording(message: Message) -> None:
            nonlocal answered, failed
            if message["type"] == "http.response.start":
                answered = True
                failed = not await self._record(call(message["status"]))
                if failed:
                    detail = "The call was carried out, but could not be written to the audit log. Free some space."
                    await send_problem(send, 503, detail)
            if not failed:
                await send(message)

        unanswered = 0
        try:
            await self._app(scope, receive, recording)
        except Exception:
            unanswered = 500
            raise
        finally:
            if not answered:
                self._log.add(call(unanswered))
        return None

    async def _record(self, call: Call) -> bool:
        """Whether the call is recorded as it must be."""
        if call.method in READS or call.status >= 400:
            self._log.add(call)
            return True
        try:
            await asyncio.wrap_future(self._log.add_durably(call))
        except RunError:
            return False
        return True


def _call(scope: Scope, began: datetime, status: int, milliseconds: float) -> Call:
    state = scope.get("state", {})
    holder = state.get("holder")
    route = state.get("route") or getattr(scope.get("route"), "path", None) or "unmatched"
    client = scope.get("client") or ("unknown", 0)
    return Call(
        began,
        str(state.get("call_id", "")),
        getattr(holder, "id", None),
        getattr(holder, "name", None),
        str(scope["method"])[:16],
        str(route)[:LONGEST],
        status,
        str(client[0])[:LONGEST],
        state.get("reference"),
        round(milliseconds, 3),
    )
