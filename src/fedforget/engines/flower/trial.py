"""Trial: a whole federation on Flower on one machine, for trying it out: server, nodes, and the users they host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from fedforget.data import Interactions
from fedforget.device.host import Host
from fedforget.device.log.user_files import UserFiles
from fedforget.engines.flower.app import write_app
from fedforget.engines.flower.network import Network
from fedforget.engines.flower.server_app import CONFIG
from fedforget.errors import ConfigError
from fedforget.files import make_folder
from fedforget.queue import Queue
from fedforget.randomness import UserId, user_key
from fedforget.request import Request
from fedforget.server.registry import Registry
from fedforget.server.unlearning import Method
from fedforget.service import found
from fedforget.settings import Settings

Tell = Callable[[str], None]


class Trial:
    """A federation in a folder: ``run/`` is the server's, ``devices/NAME/`` each node's, ``network/`` Flower's.

    Users are dealt out to the nodes in turn. Entering the ``with`` block starts the network, leaving it ends every
    process; the folder stays, and opened again the federation goes on.
    """

    def __init__(
        self, folder: Path, settings: Settings, train: Interactions, test: Interactions, devices: int = 3
    ) -> None:
        if not 1 <= devices <= train.n_users:
            raise ConfigError(
                f"There are to be {devices} devices for {train.n_users} users.", "Give 1 to as many as there are users."
            )
        self.folder = make_folder(folder.absolute())
        self.run = self.folder / "run"
        self.nodes = [f"device-{place + 1}" for place in range(devices)]
        self.hosted: dict[str, list[UserId]] = {name: [] for name in self.nodes}
        for place, user in enumerate(train.user_ids.tolist()):
            self.hosted[self.nodes[place % devices]].append(user)
        self.network = Network(self.folder / "network")
        self.invitation = found(self.run, settings, train.item_ids.tolist())
        self._enrol(train, test)

    def __enter__(self) -> Self:
        self.network.start()
        try:
            self._connect()
        except BaseException:
            self.network.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.network.stop()

    def state(self, node: str) -> Path:
        """The folder of a node's users' files."""
        return self.folder / "devices" / node

    def file(self, user: UserId) -> Path:
        """A user's file on its device."""
        node = next(name for name, users in self.hosted.items() if user in users)
        federation = self.invitation.terms.federation
        return UserFiles(self.state(node) / federation, federation).path(user_key(user))

    def config(self, rounds: int, timeout: float, evaluate_every: int = 0) -> dict[str, str | int | float | bool]:
        """How a run of the server is configured."""
        return {
            "run": str(self.run), "rounds": rounds, "timeout": float(timeout), "evaluate-every": evaluate_every
        }  # fmt: skip

    @property
    def app(self) -> Path:
        """The folder of the Flower app."""
        return write_app(self.folder / "app", CONFIG)

    def serve(self, rounds: int, timeout: float = 120.0, evaluate_every: int = 0, tell: Tell | None = None) -> None:
        """Run the server until so many rounds are done and every request to forget is carried out."""
        self.network.run(self.app, self.config(rounds, timeout, evaluate_every), tell)

    def forget(self, users: Sequence[UserId], method: Method) -> Request:
        """Ask for users to be forgotten; the server does so when it runs."""
        request = Request.new(users, method.settings(), 0.0)
        Queue(self.run).add(request)
        return request

    def _enrol(self, train: Interactions, test: Interactions) -> None:
        if (self.run / "registry.sqlite").exists():  # it has begun: who has no file has left
            return
        for name, users in self.hosted.items():
            host = Host(self.state(name))
            for user in users:
                if not self.file(user).exists():
                    host.enrol(self.invitation.terms, user, **self.invitation.parts(train, test, user))

    def _connect(self) -> None:
        """Start the nodes and register whom each speaks for: those of its users who have not left."""
        ids = {name: self.network.add_node(name, {"state": str(self.state(name))}) for name in self.nodes}
        self.network.wait_online()
        with closing(Registry(self.run)) as registry:
            for name, node in ids.items():
                here = [user for user in self.hosted[name] if self.file(user).exists()]
                gone = registry.leaving(here)
                registry.register(self.network.public_key(name), node, [user for user in here if user not in gone])
