"""The erasure service as a real process, and a receiver of its callbacks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx

from fedforget.erasure_service.state_file import open_state
from fedforget.erasure_service.tokens import SCHEMA, Role, TokenStore
from tests.erasure_service.runs import REQUESTS

PATIENCE = 60.0


@dataclass
class Served:
    """A service that runs, and a client with a token."""

    url: str
    process: subprocess.Popen[str]
    client: httpx.Client
    lines: list[str] = field(default_factory=list)

    def ask(self, body: dict[str, Any]) -> httpx.Response:
        return self.client.post(REQUESTS, json=body)

    def status(self, id_: str) -> str:
        answer = self.client.get(f"{REQUESTS}/{id_}")
        answer.raise_for_status()
        return str(answer.json()["request_status"])

    def wait(self, id_: str, state: str = "completed", seconds: float = PATIENCE) -> None:
        wait_for(lambda: self.status(id_) == state, seconds, f"{id_} is {state}")

    def kill(self) -> None:
        """SIGKILL; its worker ends by itself."""
        self.process.kill()
        self.process.wait()


def token_for(run: Path, role: Role = Role.OPERATOR) -> str:
    """A token for a run, made while its service runs or not."""
    db = open_state(run, SCHEMA)
    try:
        return TokenStore(db).add("test", role, None, datetime.now().astimezone())
    finally:
        db.close()


@contextmanager
def running(
    run: Path, *options: str, token: str | None = None, program: Sequence[str] = ("-m", "fedforget")
) -> Iterator[Served]:
    """``fedforget serve`` on a free port; ended at the end."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *program, "serve", str(run), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    lines: list[str] = []
    url: list[str] = []

    def read() -> None:
        for line in process.stdout or ():
            lines.append(line)
            if found := re.search(r"at (https?://\S+)", line):
                url.append(found[1])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        wait_for(lambda: bool(url) or process.poll() is not None, PATIENCE, "the service has an address")
        assert url, "".join(lines)
        given = token or token_for(run)
        with httpx.Client(base_url=url[0], headers={"Authorization": f"Bearer {given}"}, timeout=30) as client:
            wait_for(lambda: _answers(client), PATIENCE, "the service answers")
            yield Served(url[0], process, client, lines)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(10)
        process.stdout.close()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/v1/health").status_code == 200
    except httpx.TransportError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds; an error if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


@dataclass
class Receiver:
    """A server that receives callbacks: their bodies and headers, in order."""

    url: str
    received: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)

    @property
    def host(self) -> str:
        """Its host and port."""
        return self.url.split("/")[2]


@contextmanager
def receiver(code: int = 202) -> Iterator[Receiver]:
    """A receiver on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.received.append((body, dict(self.headers.items())))
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_port}/done")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
