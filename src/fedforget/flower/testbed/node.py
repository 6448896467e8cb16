"""Node: one SuperNode on this machine, with its own key, port and Flower home, as on a device."""

from __future__ import annotations

import hashlib
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fedforget.errors import RunError
from fedforget.flower.credentials import make_node_key
from fedforget.flower.testbed.environment import environment
from fedforget.flower.testbed.processes import Process, Watchdog
from fedforget.runtime.files import make_folder, write_file

#: Printed by a node that the SuperLink refuses. After a kill it refuses a node for about a minute, until the node has
#: missed two heartbeats.
REFUSED = "Exit Code: 305"
LONGEST_PAUSE = 8.0
_ONLINE = re.compile(r"SuperNode ID: (\d+)")


class Node:
    """A SuperNode that can be started, killed and started again under the same identity."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, str]) -> None:
        self.name = name
        self.folder = make_folder(folder)
        self.public_key = make_node_key(folder / "key")
        self.process: Process | None = None
        self._pause = 0.5
        self._restart_at = 0.0
        # In a file, because Flower misreads command line values that contain a quote or end in .toml.
        write_file(folder / "config.toml", tomli_w.dumps(dict(config)).encode())

    @property
    def id(self) -> int | None:
        """Flower's id of the node; None until it is known."""
        path = self.folder / "node-id"
        return int(path.read_text()) if path.exists() else None

    @id.setter
    def id(self, value: int) -> None:
        write_file(self.folder / "node-id", str(value).encode())

    def start(self, superlink: str, authority: Path, log: Path, watchdog: Watchdog) -> None:
        """Start the node without waiting until the SuperLink accepts it."""
        self.kill()
        command = ["flower-supernode", "--superlink", superlink, "--root-certificates", str(authority)]
        command += ["--auth-supernode-private-key", str(self.folder / "key")]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        command += ["--node-config", str(self.folder / "config.toml")]
        self.process = Process(command, log, environment(self.folder / "home"), watchdog)

    def kill(self) -> None:
        """Kill the node and its children."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def online(self) -> bool:
        """Whether the node runs and the SuperLink has accepted it; from then on its id is known."""
        if self.process is None or self.process.code() is not None:
            return False
        accepted = _ONLINE.search(self.process.output())
        if accepted is None:
            return False
        self._pause = 0.5
        if self.id != int(accepted[1]):
            self.id = int(accepted[1])
        return True

    def wants_restart(self) -> bool:
        """Whether the node was refused and its pause is over. If it ended for another reason, raise an error."""
        if self.process is None or (code := self.process.code()) is None:
            return False
        if REFUSED not in self.process.output():
            raise RunError(
                f"Node {self.name!r} ended with code {code}:\n{self.process.tail()}", f"See its log {self.process.log}."
            )
        now = time.monotonic()
        if not self._restart_at:
            self._restart_at, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if now < self._restart_at:
            return False
        self._restart_at = 0.0
        return True


def safe(name: str) -> str:
    """A readable file name for a node; different names give different file names."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")


def free_port() -> int:
    """A loopback port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
