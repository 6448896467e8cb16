"""The worker process: reports the status of a run, and carries out its queue if it is simulated.

    python -m fedforget.erasure_service.worker RUN [--poll SECONDS]

Each line on standard output is a ``RunStatus``. A line on standard input makes the process look at the queue at once;
when standard input is closed, it ends. It may be killed at any time: an erasure is continued by the next process.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from fedforget.erasure_service.retry import Retry
from fedforget.erasure_service.run_reader import RunReader
from fedforget.erasure_service.status import Progress, RunStatus, now
from fedforget.errors import BusyError, RunError
from fedforget.server.history import RoundRecord
from fedforget.server.request import ErasureRequest

#: The process gives way to the one that answers calls.
NICENESS = 10
#: Seconds between two reports: at least, of a replay's progress, and about at most, when nothing changes.
SHORTEST, LONGEST = 0.25, 10.0
#: Reading the status takes at most this share of the time.
READING_SHARE = 0.1
#: Seconds before what failed is tried again: at first, and at most.
PAUSES = 1.0, 60.0


class RunWorker:
    """Reports on one run with ``report``, and carries out its queue."""

    def __init__(self, path: Path, report: Callable[[RunStatus], None]) -> None:
        self.path = path
        self.status = RunStatus()
        self._report = report
        self._reported = 0.0
        self._lock = threading.Lock()
        self._reader = RunReader(path)
        self._seen: list[object] | None = None
        self._reading, self._erasing = Retry(*PAUSES), Retry(*PAUSES)
        self._unreadable: str | None = None
        self._stopped: str | None = None

    def turn(self) -> None:
        """Look at the run once: report what has changed, and carry out what is queued."""
        self._read()
        if self.status.engine == "simulation" and self._erasing.allows():
            try:
                self._carry_out()
            except BusyError as error:  # tried again at the next turn, which costs little
                self._stopped = reason_of(error)
            except Exception as error:  # the request stays in the queue
                self._stopped = reason_of(error)
                self._erasing.failed()
            else:
                self._stopped = None
                self._erasing.succeeded()
            self._read(at_once=self.status.waiting is not None)

    def _carry_out(self) -> None:
        """Carry out the interrupted erasure and the queue of a simulated run."""
        from fedforget.simulation.queued_erasures import QueuedErasures  # not loaded beside a server on a network

        erasures = QueuedErasures(self.path, on_request=self._begin, on_round=self._replayed)
        if erasures.pending():
            erasures.carry_out()

    def _begin(self, request: ErasureRequest) -> None:
        """Report an erasure that is about to be carried out."""
        self._stopped = None
        self._read(at_once=True)
        self._request = request
        self._send(replace(self.status, waiting=request.id, progress=Progress(0, 0)))

    def _replayed(self, record: RoundRecord) -> None:
        """Report the progress of a replay, a few times a second at most."""
        if time.monotonic() - self._reported >= SHORTEST:
            progress = self._reader.progress(self._request, self.status.rounds)
            self._send(replace(self.status, waiting=self._request.id, progress=progress))

    def _read(self, *, at_once: bool = False) -> None:
        """Read what has changed, and report it. One failure is ignored: another process may be changing the run."""
        status = self.status
        try:
            status = self._changed(at_once)
        except Exception as error:
            self._reading.failed()
            self._unreadable = reason_of(error) if self._reading.failures > 1 else None
        self._send(replace(status, error=self._unreadable or self._stopped))

    def _changed(self, at_once: bool) -> RunStatus:
        """The status now: read again if the run has changed, else only the progress of an erasure on a network."""
        signature = self._reader.signature(self.status.trajectory)
        if not (at_once or self._reading.allows()):
            return self.status
        if at_once or self._reading.failures or signature != self._seen:
            started = time.monotonic()
            status = self._reader.read()
            self._seen, self._unreadable = signature, None
            self._reading.succeeded(rest=(time.monotonic() - started) / READING_SHARE)
            return status
        if self.status.waiting is not None and (waiting := self._reader.waiting()) is not None:
            return replace(self.status, progress=self._reader.progress(waiting, self.status.rounds))
        return self.status

    def _send(self, status: RunStatus) -> None:
        """Report a status if it differs from the last one."""
        with self._lock:
            if replace(status, updated=self.status.updated) != self.status:
                self._report_now(status)

    def beat(self) -> None:
        """Report the last status again if that was long ago, also while a step of a replay takes long."""
        with self._lock:
            if self._reported and time.monotonic() - self._reported >= LONGEST:
                self._report_now(self.status)

    def _report_now(self, status: RunStatus) -> None:
        self.status, self._reported = replace(status, updated=now()), time.monotonic()
        self._report(self.status)


def reason_of(error: Exception) -> str:
    """Why something failed, without user ids, which the messages of other errors may contain."""
    if isinstance(error, RunError):
        return f"{error.problem} {error.hint}".strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Report on a run until standard input is closed."""
    parser = argparse.ArgumentParser(prog="python -m fedforget.erasure_service.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("--poll", type=float, default=1.0)
    given = parser.parse_args(arguments)
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once, as with any other signal
    warnings.simplefilter("ignore")  # they may name users; what was damaged is counted in the history
    woken = threading.Event()
    threading.Thread(target=_listen, args=(woken,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)  # nothing but reports goes to the parent
        worker = RunWorker(given.run, partial(_print, output))
        threading.Thread(target=_beat, args=(worker,), daemon=True).start()
        while True:
            worker.turn()
            woken.wait(given.poll)
            woken.clear()


def _print(output: TextIO, status: RunStatus) -> None:
    """Report to the parent, or end with it."""
    try:
        print(status.to_line(), file=output, flush=True)
    except OSError:
        os._exit(0)


def _beat(worker: RunWorker) -> None:
    """Show the parent that this process is alive."""
    while True:
        time.sleep(LONGEST / 2)
        worker.beat()


def _listen(woken: threading.Event) -> None:
    """Wake the process at every line from its parent, and end it with its parent."""
    for _ in sys.stdin.buffer:
        woken.set()
    os._exit(0)


if __name__ == "__main__":
    main()
