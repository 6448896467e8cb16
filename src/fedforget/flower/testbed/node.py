"""Node: one SuperNode on this machine, with a key, a port and a Flower home of its own, as a device would have."""

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

# What a node says last if the SuperLink refuses it. After a kill the SuperLink does so until it has missed two
# heartbeats and takes the node for gone, which is about a minute.
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
        self._again = 0.0
        # In a file, as on the command line a value with a quote, or one that ends in .toml, is misread.
        write_file(folder / "config.toml", tomli_w.dumps(dict(config)).encode())

    @property
    def id(self) -> int | None:
        """Flower's id of the node, if it is known here."""
        path = self.folder / "node-id"
        return int(path.read_text()) if path.exists() else None

    @id.setter
    def id(self, value: int) -> None:
        write_file(self.folder / "node-id", str(value).encode())

    def start(self, superlink: str, authority: Path, log: Path, keeper: Watchdog) -> None:
        """Start it; whether the SuperLink accepts it shows later."""
        self.kill()
        command = ["flower-supernode", "--superlink", superlink, "--root-certificates", str(authority)]
        command += ["--auth-supernode-private-key", str(self.folder / "key")]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        command += ["--node-config", str(self.folder / "config.toml")]
        self.process = Process(command, log, environment(self.folder / "home"), keeper)

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def online(self) -> bool:
        """Whether it runs and the SuperLink has accepted it; then its id is known too."""
        if self.process is None or self.process.code() is not None:
            return False
        said = _ONLINE.search(self.process.output())
        if said is None:
            return False
        self._pause = 0.5
        if self.id != int(said[1]):
            self.id = int(said[1])
        return True

    def wants_restart(self) -> bool:
        """Whether it was refused and has waited long enough to ask again. Any other end is an error."""
        if self.process is None or (code := self.process.code()) is None:
            return False
        if REFUSED not in self.process.output():
            raise RunError(
                f"Node {self.name!r} ended with code {code}:\n{self.process.tail()}", f"Its log is {self.process.log}."
            )
        now = time.monotonic()
        if not self._again:
            self._again, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if now < self._again:
            return False
        self._again = 0.0
        return True


def safe(name: str) -> str:
    """A name for files: readable, and different for names that differ."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
