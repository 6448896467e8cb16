"""Child processes, each with a log file and a process group; they end when the process that started them ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedforget.errors import RunError
from fedforget.runtime.files import cannot_write

# Reads which process groups to watch and kills them when its input ends, which also happens when its owner is killed.
_WATCHDOG = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    change, group = line[0], int(line[1:])
    (groups.add if change == "+" else groups.discard)(group)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Watchdog:
    """A small process that kills the watched process groups when its owner ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _WATCHDOG]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)

    def watch(self, group: int) -> None:
        """Kill this group when the owner ends."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Stop watching a group that has ended; the system may use its number again."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Kill the groups that are still watched and end the watchdog."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()


class Process:
    """A child process in its own process group, so that its children end with it. Its output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str], watchdog: Watchdog) -> None:
        self.log = log
        self._watchdog = watchdog
        try:
            file = log.open("ab")
        except OSError as error:
            raise cannot_write(log, error) from error
        with file:
            self._start = file.tell()
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    start_new_session=True,
                )
            except OSError as error:
                raise cannot_start(command, error) from error
        self.pid = self._child.pid
        watchdog.watch(self.pid)

    def code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._child.poll()

    def output(self) -> str:
        """The output of this process. The file also has the output of earlier ones."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._start)
                return plain(file.read().decode(errors="replace"))
        except OSError:
            return ""

    def tail(self, lines: int = 20) -> str:
        """The last lines of the output, for an error message."""
        return "\n".join(self.output().splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, unless it has ended and its number belongs to another process."""
        if self._child.returncode is not None:
            with suppress(ProcessLookupError):
                os.getpgid(self.pid)
                return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the whole group."""
        self.signal(signal.SIGKILL)
        self._child.wait()
        self._watchdog.forget(self.pid)


def end(processes: Iterable[Process], grace: float) -> None:
    """Ask processes to end, wait up to ``grace`` seconds, then kill what is left of their groups."""
    processes = list(processes)
    try:
        for process in processes:
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(process.code() is None for process in processes):
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()


def plain(text: str) -> str:
    """Text without terminal colours."""
    return _COLOURS.sub("", text)


def cannot_start(command: Sequence[str], error: OSError) -> RunError:
    """The error for one of Flower's commands that could not be started."""
    return RunError(
        f"Cannot start {command[0]}: {error.strerror}.",
        "Install fedforget with its extra: pip install 'fedforget[flower]'.",
    )
