"""Network: a Flower SuperLink and its SuperNodes on one machine, for trials and tests."""

from __future__ import annotations

import sqlite3
import ssl
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from fedforget.errors import ConfigError, RunError
from fedforget.flower.app import Config
from fedforget.flower.credentials import Certificates, make_certificates, make_secret
from fedforget.flower.testbed.environment import environment
from fedforget.flower.testbed.flower_cli import FlowerCli
from fedforget.flower.testbed.node import Node, free_port, safe
from fedforget.flower.testbed.processes import Process, Watchdog, end
from fedforget.runtime.files import make_folder, only_writer

START_SECONDS = 60.0
GRACE_SECONDS = 8.0


class Network:
    """One SuperLink, the executor that runs its server apps, and any number of nodes, all over TLS on loopback.

    ``folder`` contains the certificates, keys, the SuperLink's database, the nodes' homes and the logs. When a network
    is started again in the same folder, every node keeps its id.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._database = self.folder / "link.db"
        self._stack = ExitStack()
        self._nodes: dict[str, Node] = {}

    def start(self) -> None:
        """Start the SuperLink and wait until it answers."""
        try:
            self._stack.enter_context(only_writer(make_folder(self.folder)))
            self._watchdog = Watchdog()
            self._stack.callback(self._watchdog.close)
            self._certificates = make_certificates(self.folder / "certificates")
            self._secret = make_secret(self.folder / "certificates" / "executor.secret")
            self._logs = make_folder(self.folder / "logs")
            self.address = f"127.0.0.1:{free_port()}"
            self._cli = FlowerCli(self.folder / "console", self.address, self._certificates.authority)
            self._stack.callback(self._vacuum)
            self._superlink = self._start_superlink()
            self._stack.callback(lambda: end([self._superlink], GRACE_SECONDS))
            self._wait_for_superlink()
            for run_id in self._cli.unfinished():  # left over from before; they would start now
                self._cli.stop(run_id)
            self._executor = self._start_executor()
            self._stack.callback(lambda: end([self._executor], GRACE_SECONDS))
            self._stack.callback(self._end_nodes)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process. Nodes end first, so that they can sign off at the SuperLink."""
        self._stack.close()

    def add_node(self, name: str, config: Mapping[str, str]) -> int:
        """Register a node, start it and return its id. ``config`` is the node configuration for the client app."""
        if name in self._nodes:
            raise ConfigError(f"There is a node {name!r} already.", "Give each node a different name.")
        node = Node(name, self.folder / "nodes" / safe(name), config)
        node_id = self._cli.register(node.public_key)
        if node_id is not None:
            node.id = node_id
        self._nodes[name] = node
        self._start_node(node)
        if node.id is None:
            self._wait_online([node], START_SECONDS)
        assert node.id is not None
        return node.id

    def public_key(self, name: str) -> str:
        """The public key of a node."""
        return self._nodes[name].public_key.read_text(encoding="utf-8")

    def wait_online(self, timeout: float = 120.0) -> None:
        """Wait until every node is online. A node that is refused, as after a kill, is restarted."""
        self._wait_online(list(self._nodes.values()), timeout)

    def kill_node(self, name: str) -> None:
        """Kill a node and its children, as a power cut would."""
        self._nodes[name].kill()

    def restart_node(self, name: str, timeout: float = 120.0) -> None:
        """Start a node again and wait until it is online, about a minute after a kill."""
        self._start_node(self._nodes[name])
        self._wait_online([self._nodes[name]], timeout)

    def node_status(self) -> dict[int, str]:
        """Every registered node and its status at the SuperLink."""
        return self._cli.nodes()

    def submit(self, app: Path, config: Config) -> int:
        """Start a run of an app and return its id without waiting."""
        return self._cli.submit(app, config)

    def follow(self, run_id: int, on_line: Callable[[str], None] | None = None, timeout: float = 3600.0) -> None:
        """Pass each line that a run's server app prints to ``on_line`` until the run ends; raise an error if it failed.

        If the stream breaks, it is opened again and the lines already passed on are skipped.
        """
        deadline = time.monotonic() + timeout
        seen, last = 0, deque[str](maxlen=20)
        while True:
            with self._cli.lines(run_id, deadline - time.monotonic()) as lines:
                for number, line in enumerate(lines, start=1):
                    if number > seen:
                        seen = number
                        last.append(line)
                        if on_line is not None:
                            on_line(line)
            status, reason = self._cli.status(run_id)
            if status == "finished:completed":
                return
            if status.startswith("finished"):
                printed = "\n".join(last)
                raise RunError(
                    f"Run {run_id} ended as {status.partition(':')[2]}: {reason}\n{printed}",
                    f"See the logs in {self._logs}.",
                )
            if time.monotonic() > deadline:
                self._cli.stop(run_id)
                raise RunError(f"Run {run_id} did not end within {timeout:.0f} s and was stopped.", "Allow more time.")

    def kill_server_app(self) -> None:
        """Kill the running server app with its executor, and start a new executor."""
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
        """Start an executor with a secret.

        Otherwise the SuperLink starts one that outlives it, and gives work to any executor that asks.
        """
        command = ["flower-superexec", "--runtime-api-address", self.address]
        command += ["--root-certificates", str(self._certificates.authority)]
        command += ["--superexec-auth-secret-file", str(self._secret)]
        return self._start(command, "executor")

    def _start(self, command: list[str], name: str) -> Process:
        return Process(command, self._logs / f"{name}.log", environment(self.folder / "home"), self._watchdog)

    def _start_node(self, node: Node) -> None:
        node.start(self.address, self._certificates.authority, self._logs / f"{node.folder.name}.log", self._watchdog)

    def _end_nodes(self) -> None:
        end((node.process for node in self._nodes.values() if node.process is not None), GRACE_SECONDS)
        self._nodes.clear()

    def _vacuum(self) -> None:
        """Rewrite the SuperLink's database, so that its file contains no deleted messages."""
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
                    f"The SuperLink did not start:\n{self._superlink.tail()}", f"See its log {self._superlink.log}."
                )
            time.sleep(0.1)

    def _wait_online(self, nodes: list[Node], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while waiting := [node for node in nodes if not node.online()]:
            if time.monotonic() > deadline:
                process = waiting[0].process
                printed = process.tail() if process is not None else "It was not started."
                names = ", ".join(repr(node.name) for node in waiting[:5])
                raise RunError(
                    f"Not online after {timeout:.0f} s: {names}.\n{printed}", f"See the logs in {self._logs}."
                )
            for node in waiting:
                if node.wants_restart():
                    self._start_node(node)
            time.sleep(0.1)


def answers(address: str, certificates: Certificates) -> bool:
    """Whether a SuperLink with this certificate answers at an address."""
    context = ssl.create_default_context(cafile=str(certificates.authority))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with suppress(OSError), opener.open(f"https://{address}/health", timeout=5) as reply:
        return bool(reply.status == 200)
    return False
