"""CallLog: an audit log of every call: who did what and when.

``RUN/service/calls/calls-2026-11-18-000001.jsonl``: one JSON object with the fields of ``Call`` per line; a new file
every day (UTC) and when one is large. Files are used rather than a table because reads must not wait for the database's
writers, log collectors can follow them, and what is too old is deleted with its file.

Lines hold no user ids, tokens, bodies or paths: paths contain the ids of requests, so routes are named by template.
They hold client addresses, which are personal data in many places: ``keep`` says how long.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedforget.errors import RunError
from fedforget.runtime.files import PRIVATE_FILE, cannot_write, make_folder

FOLDER = "calls"
#: A file that is larger is followed by the next one.
MOST_BYTES = 1 << 25
#: Calls that wait to be written; more are counted as lost rather than held in memory.
MOST_WAITING = 100_000
#: No line is longer: names, routes and methods are bounded.
LONGEST_LINE = 2048
RETENTION_CHECK_SECONDS = 3600.0
_NAME = re.compile(r"calls-(\d{4}-\d\d-\d\d)-(\d{6})\.jsonl")


@dataclass(frozen=True)
class Call:
    """One call. ``reference`` is a short hash of the erasure request that it was about; ``status`` 0 is no answer."""

    time: datetime
    call_id: str
    holder_id: str | None
    holder_name: str | None
    method: str
    route: str
    status: int
    client: str
    reference: str | None
    milliseconds: float


class CallLog:
    """Writes calls in a thread. A kill loses at most the calls of the last ``flush_seconds`` that changed nothing."""

    def __init__(
        self,
        folder: Path,
        keep: timedelta,
        *,
        most_bytes: int = MOST_BYTES,
        flush_seconds: float = 0.2,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder = make_folder(folder)
        self._keep = keep
        self._most_bytes = most_bytes
        self._flush_seconds = flush_seconds
        self._clock = clock
        #: Calls that could not be written, because of a full disk for example.
        self.lost = 0
        #: Why the last calls were lost; None once calls can be written again.
        self.problem: str | None = None
        self._waiting: deque[Call] = deque()
        self._futures: list[Future[None]] = []
        self._closed = False
        self._changed = threading.Condition()
        self._file: tuple[int, Path] | None = None
        self.delete_old()
        self._thread = threading.Thread(target=self._run, name="call-log", daemon=True)
        self._thread.start()

    def add(self, call: Call) -> None:
        """Write a call soon. This takes microseconds."""
        with self._changed:
            if self._closed or len(self._waiting) >= MOST_WAITING:
                self.lost += 1
                self.problem = "Calls come faster than they can be written."
                return
            self._waiting.append(call)
            if len(self._waiting) == 1:
                self._changed.notify()

    def add_durably(self, call: Call) -> Future[None]:
        """Write a call now: when the future is done, it is on disk. The future has the error if it cannot be written.

        Calls that come at the same time share one synchronisation of the disk.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a client that goes away cannot cancel it
        with self._changed:
            if self._closed:
                self.lost += 1
                future.set_exception(RunError("The audit log is closed.", "Start the service again."))
                return future
            self._waiting.append(call)
            self._futures.append(future)
            self._changed.notify()
        return future

    def newest(self, count: int) -> list[Call]:
        """The last calls, the newest first; those of the last ``flush_seconds`` may be missing."""
        calls: list[Call] = []
        for path in reversed(self._files()):
            with suppress(FileNotFoundError):
                lines = _last_lines(path, count - len(calls))
                calls += [call for line in reversed(lines) if (call := _parsed(line)) is not None]
            if len(calls) >= count:
                break
        return calls

    def delete_old(self) -> None:
        """Delete the files of days that ended longer than ``keep`` ago."""
        first = (self._clock() - self._keep).date().isoformat()
        for path in self._files():
            if path.name[6:16] < first:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _files(self) -> list[Path]:
        """All files, the oldest first."""
        return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))

    def _run(self) -> None:
        checked = time.monotonic()
        while True:
            calls, futures, closed = self._next_batch()
            if calls:
                self._write(calls, futures)
            elif closed:
                break
            if time.monotonic() - checked >= RETENTION_CHECK_SECONDS:
                checked = time.monotonic()
                with suppress(OSError):
                    self.delete_old()
        self._close_file()

    def _next_batch(self) -> tuple[list[Call], list[Future[None]], bool]:
        """The calls to write now. Those that changed nothing wait for others, so that many are written at once."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, RETENTION_CHECK_SECONDS)
            if self._waiting:
                self._changed.wait_for(lambda: self._futures or self._closed, self._flush_seconds)
            batch = list(self._waiting), self._futures, self._closed
            self._waiting.clear()
            self._futures = []
            return batch

    def _write(self, calls: list[Call], futures: list[Future[None]]) -> None:
        path = self._folder
        try:
            handle, path = self._opened()
            _write_all(handle, b"".join(map(_line, calls)))
            if futures:
                os.fsync(handle)
        except Exception as error:  # the thread must live on, and whoever waits must learn of it
            self._close_file()
            self.lost += len(calls)
            reason = cannot_write(path, error)
            self.problem = f"{reason.problem} {reason.hint}"
            for future in futures:
                future.set_exception(reason)
            return
        self.problem = None
        for future in futures:
            future.set_result(None)

    def _opened(self) -> tuple[int, Path]:
        """The file to write to. After a crash or an error, its last line may be a part, which is ended."""
        today = self._clock().date().isoformat()
        if self._file is not None:
            handle, path = self._file
            if path.name[6:16] == today and os.fstat(handle).st_size < self._most_bytes and path.exists():
                return self._file
            self._close_file()
        path = self._path_of(today)
        new = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
        self._file = handle, path
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            _write_all(handle, b"\n")
        if new:
            _sync_folder(self._folder)
        return self._file

    def _path_of(self, day: str) -> Path:
        """The last file of a day, or the next one if that is large or there is none."""
        last = [path for path in self._files() if path.name[6:16] == day][-1:]
        if last and last[0].stat().st_size < self._most_bytes:
            return last[0]
        number = int(last[0].stem[17:]) + 1 if last else 1
        return self._folder / f"calls-{day}-{number:06}.jsonl"

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file[0])
            self._file = None


def _line(call: Call) -> bytes:
    return json.dumps({**vars(call), "time": call.time.isoformat()}).encode() + b"\n"


def _parsed(line: bytes) -> Call | None:
    """The call of a line; None if the line was cut off by a crash."""
    try:
        value = json.loads(line)
        known = {field.name: value[field.name] for field in fields(Call)}
        return Call(**{**known, "time": datetime.fromisoformat(value["time"])})
    except (ValueError, KeyError, TypeError):
        return None


def _last_lines(path: Path, count: int) -> list[bytes]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - count * LONGEST_LINE))
        lines = file.read(size - start).splitlines()
    return lines[1 if start else 0 :][-count:]


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
