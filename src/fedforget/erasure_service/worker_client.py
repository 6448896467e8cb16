"""Worker: the child process that does the heavy work on a run, as seen from the HTTP process.

The child reports the status of the run, one line of JSON each time, and is woken by lines on its standard input. It
ends when that is closed, so it never outlives this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from fedforget.erasure_service.retry import Retry
from fedforget.erasure_service.status import RunStatus

MODULE = "fedforget.erasure_service.worker"
#: Seconds before a child that ended is started again: at first, and at most if each ends within ``STEADY`` seconds.
PAUSES, STEADY = (0.5, 60.0), 30.0
#: Seconds to wait for a child to end when it is asked to, before it is killed.
PATIENCE = 5.0


class Worker:
    """Keeps a worker process running. ``status`` is what it reported last; None before its first report."""

    def __init__(self, run: Path, python: str = sys.executable, poll: float = 1.0) -> None:
        self.status: RunStatus | None = None
        self._heard = time.monotonic()
        self._command = [python, "-P", "-m", MODULE, str(run), "--poll", str(poll)]
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def silent_seconds(self) -> float:
        """The seconds since the process reported, or was started; it reports every ten seconds at least."""
        return time.monotonic() - self._heard

    @property
    def pid(self) -> int | None:
        """The number of the process that was started last."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; whenever it ends, it is started again."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._keep_running, name="worker", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the process. An erasure that it was carrying out is continued when it is started again."""
        self._stopping.set()
        if self._thread is not None:
            self._end()
            self._thread.join()
            self._thread = None

    def wake(self) -> None:
        """Have the process look at the queue at once."""
        with self._lock, suppress(OSError, ValueError):  # if it has just ended, the next one looks at the queue first
            if self._process is not None and self._process.stdin is not None:
                os.write(self._process.stdin.fileno(), b"\n")

    def _keep_running(self) -> None:
        """Start one process after the other and read their reports, until this worker is stopped."""
        retry = Retry(*PAUSES)
        while not self._stopping.is_set():
            started = self._heard = time.monotonic()
            with self._launch() as output:
                for line in output:
                    if (status := RunStatus.from_line(line)) is not None:
                        self.status, self._heard = status, time.monotonic()
                self._end()
            if time.monotonic() - started > STEADY:
                retry.succeeded()
            retry.failed()
            self._stopping.wait(retry.pause)

    def _launch(self) -> IO[bytes]:
        """Start a process; returns its output. Nothing is started while this worker is being stopped."""
        with self._lock, suppress(OSError):  # out of processes or memory: it is tried again
            if not self._stopping.is_set():
                # In a session of its own, since Ctrl-C at a terminal is for this process only.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                )
                assert self._process.stdin is not None
                assert self._process.stdout is not None
                os.set_blocking(self._process.stdin.fileno(), False)
                return self._process.stdout
        return BytesIO()

    def _end(self) -> None:
        """End the process: it does so when its standard input is closed; if not, it is killed."""
        with self._lock:
            process = self._process
            if process is None:
                return
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
