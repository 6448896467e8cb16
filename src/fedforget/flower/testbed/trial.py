"""Trial: a federation on a Flower network on one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from fedforget.data import Interactions
from fedforget.device.device import Device
from fedforget.device.log.user_files import UserFiles
from fedforget.errors import ConfigError
from fedforget.flower.app import write_app
from fedforget.flower.server_app import CONFIG
from fedforget.flower.testbed.network import Network
from fedforget.runtime.files import make_folder
from fedforget.runtime.randomness import UserId, user_key
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.node_registry import NodeRegistry
from fedforget.server.request import ErasureRequest
from fedforget.server.run_config import RunConfig
from fedforget.server.service import create_federation
from fedforget.server.unlearning import Method

Tell = Callable[[str], None]


class Trial:
    """A federation in a folder with the server's ``run/``, each node's ``devices/NAME/`` and Flower's ``network/``.

    Users are distributed among the nodes in turn. Entering the ``with`` block starts the network, leaving it ends every
    process. The folder stays; a federation that it contains is continued.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        train: Interactions,
        test: Interactions,
        devices: int = 3,
        secret: str | None = None,
    ) -> None:
        if not 1 <= devices <= train.n_users:
            raise ConfigError(
                f"There are {devices} devices for {train.n_users} users.", "Give at least 1 and at most one per user."
            )
        self.folder = make_folder(folder.absolute())
        self.run = self.folder / "run"
        users = train.user_ids.tolist()
        self.hosted: dict[str, list[UserId]] = {f"device-{i + 1}": users[i::devices] for i in range(devices)}
        self.network = Network(self.folder / "network")
        self.invitation = create_federation(self.run, config, train.item_ids.tolist())
        self._enrol(train, test, secret)

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
        """The configuration of a run of the server app."""
        return {"run": str(self.run), "rounds": rounds, "timeout": float(timeout), "evaluate-every": evaluate_every}

    @property
    def app(self) -> Path:
        """The folder of the Flower app."""
        return write_app(self.folder / "app", CONFIG)

    def serve(self, rounds: int, timeout: float = 120.0, evaluate_every: int = 0, tell: Tell | None = None) -> None:
        """Run the server until this many rounds and all erasure requests are done."""
        run_id = self.network.submit(self.app, self.config(rounds, timeout, evaluate_every))
        self.network.follow(run_id, tell)

    def forget(self, users: Sequence[UserId], method: Method) -> ErasureRequest:
        """Queue an erasure request for the next run of the server."""
        request = ErasureRequest.new(users, method.settings(), 0.0)
        ErasureQueue(self.run).add(request)
        return request

    def _enrol(self, train: Interactions, test: Interactions, secret: str | None) -> None:
        if (self.run / "registry.sqlite").exists():  # already enrolled; users without a file were forgotten
            return
        for name, users in self.hosted.items():
            device = Device(self.state(name))
            for user in users:
                if not self.file(user).exists():
                    items = train.item_ids_of(user), test.item_ids_of(user)
                    device.join(self.invitation, user, *items, secret=secret)

    def _connect(self) -> None:
        """Start the nodes and register their users who were not forgotten."""
        ids = {name: self.network.add_node(name, {"state": str(self.state(name))}) for name in self.hosted}
        self.network.wait_online()
        with closing(NodeRegistry(self.run)) as registry:
            for name, node in ids.items():
                enrolled = [user for user in self.hosted[name] if self.file(user).exists()]
                wiping = registry.leaving(enrolled)
                users = [user for user in enrolled if user not in wiping]
                registry.register(self.network.public_key(name), node, users)
