"""Reads at a fixed rate: a service that stalls cannot hide it, and every call that fails is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from fedforget.experiments.http_connection import HttpConnection
from fedforget.experiments.service_load import Load, Plan, read
from fedforget.experiments.service_requests import Asked, post_all

Answer = Callable[[int, bytes], tuple[float, bytes]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


async def against(answer: Answer, run: Callable[[int], asyncio.Future[Load]]) -> object:
    """Run a client against a server; ``answer`` gives the seconds and the bytes for the nth call."""
    calls = 0
    lock, open_ones = asyncio.Lock(), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        task = asyncio.current_task()
        assert task is not None
        open_ones.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
                body = await reader.readexactly(int(lengths[0])) if lengths else b""
                calls += 1
                seconds, content = answer(calls, head + body)
                async with lock:  # one at a time, as a service that stalls
                    await asyncio.sleep(seconds)
                writer.write(content)
                if not content:
                    break
        except (EOFError, ConnectionError):
            pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        result = await run(server.sockets[0].getsockname()[1])
        await asyncio.gather(*open_ones)
        return result


def load_on(answer: Answer, rate: float = 100.0, seconds: float = 1.0, connections: int = 2) -> Load:
    def run(port: int):
        return read(Plan("127.0.0.1", port, "token", ["/a"], rate, seconds, connections))

    return asyncio.run(against(answer, run))  # type: ignore[arg-type,return-value]


def test_calls_that_had_to_wait_for_a_stall_count_from_when_they_were_due() -> None:
    """After a stall of 0.3 s, the 30 calls that were due in it are late by what was left of it."""
    load = load_on(lambda n, _: (0.3 if n == 30 else 0.0, OK))
    late = sorted(load.latencies, reverse=True)
    assert len(load.latencies) == 100
    assert load.errors == {}
    assert late[0] >= 0.3
    assert sum(latency > 0.1 for latency in late) >= 15
    assert sum(seconds > 0.1 for seconds in load.service_seconds) <= 4


def test_calls_begin_when_they_are_due() -> None:
    load = load_on(lambda n, _: (0.0, OK), rate=200.0, seconds=0.5)
    assert load.elapsed == pytest.approx(0.5, abs=0.2)
    assert sorted(load.due) == pytest.approx([n / 200 for n in range(100)])


def test_what_fails_is_counted_and_the_others_go_on() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    load = load_on(lambda n, _: (0.0, b"" if n == 20 else busy if n == 40 else OK))
    assert load.errors == {"IncompleteReadError": 1, "503": 1}
    assert len(load.latencies) == 98


def test_requests_are_posted_once_each_until_the_service_is_gone() -> None:
    seen: list[bytes] = []

    def answer(n: int, call: bytes) -> tuple[float, bytes]:
        seen.append(call.partition(b"\r\n\r\n")[2])
        return 0.0, b"" if n > 10 else OK.replace(b"200 OK", b"201 Created")

    bodies = [Asked.new(user).body() for user in range(30)]
    counts: list[int] = []

    def run(port: int):
        return post_all(("127.0.0.1", port), "token", bodies, 4, counts.append)

    answers = asyncio.run(against(answer, run))  # type: ignore[arg-type]
    assert isinstance(answers, dict)
    assert set(answers.values()) == {201}
    assert len(answers) == 10 == len(counts)
    assert len(seen) == len(set(seen)) == 14
    assert set(seen) <= set(bodies)


def test_a_connection_is_opened_again_after_an_error() -> None:
    async def run(port: int) -> list[object]:
        connection = HttpConnection("127.0.0.1", port, "token")
        results: list[object] = []
        for _ in range(3):
            try:
                results.append((await connection.call("GET", "/a"))[1])
            except EOFError:
                results.append(None)
        await connection.close()
        return results

    assert asyncio.run(against(lambda n, _: (0.0, b"" if n == 2 else OK), run)) == [b"hi", None, b"hi"]  # type: ignore[arg-type]
