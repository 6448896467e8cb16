"""Processes: children with a log file and a process group each, which end with whoever started them."""

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

# Told the groups to watch, it kills them when its input ends: also when the owner was killed and could not.
_KEEPER = """
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
    """A small process that outlives its owner by a moment, to end the process groups the owner left behind."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _KEEPER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)

    def watch(self, group: int) -> None:
        """End this group should the owner die."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """This group has ended: its number may come to be someone else's."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End what is still watched, and the keeper."""
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
    """A child in a process group of its own, so that whatever it starts ends with it. Its output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str], keeper: Watchdog) -> None:
        self.log = log
        self._keeper = keeper
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
        keeper.watch(self._child.pid)

    @property
    def pid(self) -> int:
        """Of the child, and of its group."""
        return self._child.pid

    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._child.poll()

    def output(self) -> str:
        """What it has said since it was started; the file also has what its predecessors said."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._start)
                return plain(file.read().decode(errors="replace"))
        except OSError:
            return ""

    def tail(self, lines: int = 20) -> str:
        """The end of what it said, for an error message."""
        return "\n".join(self.output().splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, unless it is gone and its number has come to be someone else's."""
        if self._child.returncode is not None:
            with suppress(ProcessLookupError):
                os.getpgid(self.pid)
                return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End the whole group at once."""
        self.signal(signal.SIGKILL)
        self._child.wait()
        self._keeper.forget(self.pid)


def end(processes: Iterable[Process], grace: float) -> None:
    """Ask all to end, wait, and kill what has not ended in time, with all that it started."""
    leaving = list(processes)
    try:
        for process in leaving:
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(process.code() is None for process in leaving):
            time.sleep(0.05)
    finally:
        for process in leaving:
            process.kill()


def plain(text: str) -> str:
    """Text without the colours of a terminal."""
    return _COLOURS.sub("", text)


def cannot_start(command: Sequence[str], error: OSError) -> RunError:
    """The error for a command of Flower that could not be started."""
    return RunError(
        f"Cannot start {command[0]}: {error.strerror}.",
        "Install fedforget with its extra: pip install 'fedforget[flower]'.",
    )
