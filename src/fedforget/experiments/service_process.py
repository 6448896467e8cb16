"""ServiceProcess: ``fedforget serve`` as a process of this machine, for benchmarks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from fedforget.errors import FedForgetError

#: Seconds that the service has for starting, and for stopping.
START_SECONDS, STOP_SECONDS = 120.0, 30.0
FEDFORGET = [sys.executable, "-P", "-m", "fedforget"]


class ServiceProcess:
    """The service of a run, on a free port of loopback; its messages are in ``log``."""

    def __init__(self, run: Path, log: Path, token: str, *options: str) -> None:
        self.token = token
        self._opener = build_opener(ProxyHandler({}))
        command = [*FEDFORGET, "serve", str(run), "--port", "0", *options]
        with log.open("ab") as messages:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, text=True
            )
        try:
            self.url = self._address(log)
            wait_for(lambda: self.get("/v1/ready")[0] == 200, START_SECONDS, "the service is ready")
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def get(self, path: str) -> tuple[int, Any]:
        """The status of an answer, and its JSON."""
        return self._call(Request(f"{self.url}{path}"))

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """The same of a call with a body."""
        return self._call(Request(f"{self.url}{path}", data=body, headers={"Content-Type": "application/json"}))

    def workers(self) -> list[int]:
        """The ids of the processes that it has started."""
        found: list[int] = []
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, path.read_text().split())
        return found

    def kill(self) -> None:
        """SIGKILL to the service and its worker, at once."""
        workers = self.workers()
        self.process.kill()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        self.process.wait()
        wait_for(
            lambda: not any(Path(f"/proc/{worker}/fd").exists() for worker in workers), STOP_SECONDS, "it is killed"
        )

    def stop(self) -> None:
        """Ask it to stop, as systemd does; kill it if it does not."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def _address(self, log: Path) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            _, found, url = line.rpartition(" at http")
            if found:
                return f"http{url.strip()}"
        raise FedForgetError("The service did not start.", log.read_text(errors="replace")[-500:])

    def _call(self, request: Request) -> tuple[int, Any]:
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with self._opener.open(request, timeout=START_SECONDS) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, None
        except (URLError, OSError, ValueError):
            return 0, None


def make_token(run: Path) -> str:
    """A token of an operator, by the command for it."""
    command = [*FEDFORGET, "token", "add", str(run), "--role", "operator", "--name", "benchmark"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds; an error if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise FedForgetError(f"Not within {seconds:.0f} s: {what}.", "Is the machine busy? Try again.")
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
