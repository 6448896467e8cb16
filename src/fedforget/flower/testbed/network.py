"""Network: a Flower SuperLink and its SuperNodes on one machine, for trying and testing what real devices will run."""

from __future__ import annotations

import sqlite3
import ssl
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from fedforget.errors import ConfigError, RunError
from fedforget.flower.app import Config
from fedforget.flower.credentials import Certificates, make_certificates, make_secret
from fedforget.flower.testbed.environment import environment
from fedforget.flower.testbed.flower_cli import Console
from fedforget.flower.testbed.node import Node, free_port, safe
from fedforget.flower.testbed.processes import Process, Watchdog, end
from fedforget.runtime.files import make_folder, only_writer

START_SECONDS = 60.0
GRACE_SECONDS = 8.0


class Network:
    """One SuperLink, the executor that runs its server apps, and any number of nodes, all over TLS on loopback.

    ``folder`` holds all of it: certificates, keys, the SuperLink's database, the nodes' homes and the logs. Opened
    again, it is the same network: every node keeps its id. Leaving the ``with`` block ends every process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._database = self.folder / "link.db"
        self._stack = ExitStack()
        self._nodes: dict[str, Node] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start the SuperLink and wait until it answers."""
        try:
            self._stack.enter_context(only_writer(make_folder(self.folder)))
            self._keeper = Watchdog()
            self._stack.callback(self._keeper.close)
            self._certificates = make_certificates(self.folder / "certificates")
            self._secret = make_secret(self.folder / "certificates" / "executor.secret")
            self._logs = make_folder(self.folder / "logs")
            self.address = f"127.0.0.1:{free_port()}"
            self._console = Console(self.folder / "console", self.address, self._certificates.authority)
            self._stack.callback(self._wipe)
            self._superlink = self._start_superlink()
            self._stack.callback(lambda: end([self._superlink], GRACE_SECONDS))
            self._wait_for_superlink()
            self._end_leftover_runs()
            self._executor = self._start_executor()
            self._stack.callback(lambda: end([self._executor], GRACE_SECONDS))
            self._stack.callback(self._end_nodes)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process, the nodes first, so that the SuperLink hears that they leave."""
        self._stack.close()

    def add_node(self, name: str, config: Mapping[str, str]) -> int:
        """Admit a node, start it and return its id. What the client app needs to know of its device is ``config``."""
        if name in self._nodes:
            raise ConfigError(f"There is a node {name!r} already.", "Give every node a name of its own.")
        node = Node(name, self.folder / "nodes" / safe(name), config)
        admitted = self._console.register(node.public_key)
        if admitted is not None:
            node.id = admitted
        self._nodes[name] = node
        self._start_node(node)
        if node.id is None:
            self._wait_online([node], START_SECONDS)
        assert node.id is not None
        return node.id

    def public_key(self, name: str) -> str:
        """The key by which a node is known."""
        return self._nodes[name].public_key.read_text(encoding="utf-8")

    def wait_online(self, node_ids: Iterable[int] | None = None, timeout: float = 120.0) -> None:
        """Wait until these nodes, or all, are online. One that is refused, as after a kill, is started again."""
        wanted = None if node_ids is None else set(node_ids)
        self._wait_online([node for node in self._nodes.values() if wanted is None or node.id in wanted], timeout)

    def kill_node(self, name: str) -> None:
        """Kill a node and all it has started, as a power cut would."""
        self._nodes[name].kill()

    def restart_node(self, name: str, timeout: float = 120.0) -> None:
        """Start a node again and wait until it is online: after a kill that is about a minute."""
        self._start_node(self._nodes[name])
        self._wait_online([self._nodes[name]], timeout)

    def node_status(self) -> dict[int, str]:
        """Every registered node and whether the SuperLink takes it for online."""
        return self._console.nodes()

    def submit(self, app: Path, config: Config) -> int:
        """Start a run of an app with these values for its keys, and return its id without waiting."""
        return self._console.submit(app, config)

    def run(
        self, app: Path, config: Config, on_line: Callable[[str], None] | None = None, timeout: float = 3600.0
    ) -> int:
        """Run an app to its end and return the run's id."""
        run_id = self.submit(app, config)
        self.follow(run_id, on_line, timeout)
        return run_id

    def follow(self, run_id: int, on_line: Callable[[str], None] | None = None, timeout: float = 3600.0) -> None:
        """Hand on each line of a run's server app until the run has ended. A run that failed is an error.

        Should the stream break, it is opened again and what was seen is skipped.
        """
        deadline = time.monotonic() + timeout
        seen, last = 0, deque[str](maxlen=20)
        while True:
            with self._console.lines(run_id, deadline - time.monotonic()) as lines:
                for number, line in enumerate(lines, start=1):
                    if number > seen:
                        seen = number
                        last.append(line)
                        if on_line is not None:
                            on_line(line)
            status, reason = self._console.status(run_id)
            if status == "finished:completed":
                return
            if status.startswith("finished"):
                said = "\n".join(last)
                raise RunError(f"Run {run_id} ended as {status.partition(':')[2]}: {reason}\n{said}", "See the logs.")
            if time.monotonic() > deadline:
                self.stop_run(run_id)
                raise RunError(f"Run {run_id} did not end within {timeout:.0f} s.", "It was stopped.")

    def stop_run(self, run_id: int) -> None:
        """End a run."""
        self._console.stop(run_id)

    def kill_server_app(self) -> None:
        """Kill the server app that runs, with the executor that started it, and start a new executor."""
        self._executor.kill()
        self._executor = self._start_executor()

    def _start_superlink(self) -> Process:
        host, port = self.address.split(":")
        files = self._certificates
        command = ["flower-superlink", "--host", host, "--port", port, "--database", str(self._database)]
        command += ["--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.certificate)]
        command += ["--ssl-keyfile", str(files.key), "--enable-supernode-auth", "--isolation", "process"]
        command += ["--superexec-auth-secret-file", str(self._secret), "--disable-runtime-dependency-installation"]
        return self._start(command, "superlink")

    def _start_executor(self) -> Process:
        """Left to itself, the SuperLink starts one that outlives it, and gives work to any other that asks."""
        command = ["flower-superexec", "--runtime-api-address", self.address]
        command += ["--root-certificates", str(self._certificates.authority)]
        command += ["--superexec-auth-secret-file", str(self._secret)]
        return self._start(command, "executor")

    def _start(self, command: list[str], name: str) -> Process:
        return Process(command, self._logs / f"{name}.log", environment(self.folder / "home"), self._keeper)

    def _start_node(self, node: Node) -> None:
        node.start(self.address, self._certificates.authority, self._logs / f"{node.folder.name}.log", self._keeper)

    def _end_nodes(self) -> None:
        end((node.process for node in self._nodes.values() if node.process is not None), GRACE_SECONDS)
        self._nodes.clear()

    def _wipe(self) -> None:
        """Rewrite the database of the SuperLink, so that its file keeps nothing of the messages that passed."""
        if not self._database.exists():
            return
        with suppress(sqlite3.Error), closing(sqlite3.connect(self._database, isolation_level=None)) as database:
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _wait_for_superlink(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.address, self._certificates):
            if self._superlink.code() is not None or time.monotonic() > deadline:
                raise RunError(
                    f"The SuperLink did not start:\n{self._superlink.tail()}", f"Its log is {self._superlink.log}."
                )
            time.sleep(0.1)

    def _end_leftover_runs(self) -> None:
        """A run that waited when its network ended would start now, and nobody asked for it."""
        for run_id in self._console.unfinished():
            self.stop_run(run_id)

    def _wait_online(self, nodes: list[Node], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while waiting := [node for node in nodes if not node.online()]:
            if time.monotonic() > deadline:
                said = waiting[0].process.tail() if waiting[0].process is not None else "It was not started."
                names = ", ".join(repr(node.name) for node in waiting[:5])
                raise RunError(f"Not online after {timeout:.0f} s: {names}.\n{said}", f"The logs are in {self._logs}.")
            for node in waiting:
                if node.wants_restart():
                    self._start_node(node)
            time.sleep(0.1)


def answers(address: str, certificates: Certificates) -> bool:
    """Whether a SuperLink with this certificate answers there."""
    context = ssl.create_default_context(cafile=str(certificates.authority))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with suppress(OSError), opener.open(f"https://{address}/health", timeout=5) as reply:
        return bool(reply.status == 200)
    return False
