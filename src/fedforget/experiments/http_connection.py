"""HttpConnection: a connection that is kept open, with as much of HTTP as benchmarks of a local service need."""

from __future__ import annotations

import asyncio
from contextlib import suppress

#: Seconds after which a call has failed.
PATIENCE = 30.0


class HttpConnection:
    """One connection to an address, opened at the first call and again after an error."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.host, self.port = host, port
        self._head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answer; ``OSError``, ``EOFError`` or ``ValueError`` if there is none."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._call(method, path, body)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            (_, writer), self._streams = self._streams, None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _call(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)
        await writer.drain()
        status = int((await reader.readuntil(b"\r\n")).split()[1])
        headers = {}
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        content = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            await self.close()
        return status, content
