"""Reads of a service at a fixed rate, from a process of its own.

    python -m fedforget.experiments.service_load < plan > result

The times at which calls begin are set in advance, and a call's duration counts from then, also if every connection was
still busy: a service that stalls does not slow down who measures it. Plan and result are JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from fedforget.experiments.http_connection import HttpConnection

#: Seconds between the start of the process and its first call.
LEAD = 0.5


@dataclass(frozen=True)
class Plan:
    """What to read: ``paths`` in turn, ``rate`` a second for ``seconds``, over so many connections."""

    host: str
    port: int
    token: str
    paths: list[str]
    rate: float
    seconds: float
    connections: int


@dataclass
class Load:
    """What came of it. Of each call that was answered: seconds since it was due, and since it was sent."""

    began: float = 0.0
    elapsed: float = 0.0
    due: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    service_seconds: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)


async def read(plan: Plan) -> Load:
    """Carry out a plan."""
    loop, load, errors = asyncio.get_running_loop(), Load(), Counter[str]()
    free: asyncio.Queue[HttpConnection] = asyncio.Queue()
    connections = [HttpConnection(plan.host, plan.port, plan.token) for _ in range(plan.connections)]
    for connection in connections:
        await connection.call("GET", plan.paths[0])
        free.put_nowait(connection)
    start = loop.time() + LEAD

    async def one(n: int) -> None:
        due, connection = start + n / plan.rate, await free.get()
        sent = loop.time()
        try:
            status, _ = await connection.call("GET", plan.paths[n % len(plan.paths)])
        except (OSError, EOFError, ValueError) as error:
            errors[type(error).__name__] += 1
        else:
            now = loop.time()
            if status == 200:
                load.due.append(due - start)
                load.latencies.append(now - due)
                load.service_seconds.append(now - sent)
            else:
                errors[str(status)] += 1
        finally:
            free.put_nowait(connection)

    calls = []
    for n in range(round(plan.rate * plan.seconds)):
        await asyncio.sleep(max(0.0, start + n / plan.rate - loop.time()))
        calls.append(asyncio.create_task(one(n)))
    await asyncio.gather(*calls)
    load.began, load.elapsed, load.errors = start, loop.time() - start, dict(errors)
    for connection in connections:
        await connection.close()
    return load


def main() -> None:
    """Read a plan from standard input, carry it out and print what came of it."""
    values: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps(asdict(asyncio.run(read(Plan(**values))))))


if __name__ == "__main__":
    main()
