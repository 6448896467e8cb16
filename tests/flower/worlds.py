"""The same small federation on either engine, with what a test may ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import fedforget as ff
from fedforget.device import host
from fedforget.device.device import Device
from fedforget.device.devices import Devices
from fedforget.device.host import Host
from fedforget.device.local_evaluation import no_users
from fedforget.device.log.user_files import UserFiles
from fedforget.device.member import Member
from fedforget.errors import QuorumError
from fedforget.flower.fleet import FlowerFleet
from fedforget.models import GlobalParameters
from fedforget.protocol.invitation import Invitation
from fedforget.runtime.randomness import UserId
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.history import History
from fedforget.server.node_registry import NodeRegistry
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest
from fedforget.server.run_config import RunConfig
from fedforget.server.service import Service, create_federation
from fedforget.server.unlearning import Method
from tests.flower.in_process import InProcessGrid
from tests.small_federations import named

DATA = named(ff.synthetic(users=12, items=30, mean_items=8, seed=2))
TRAIN, TEST = DATA.split(0.2, 0)
USERS: list[UserId] = TRAIN.user_ids.tolist()
NODES = 3
SEED = 3


def options(**changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "model": ff.MF(dim=8),
        "seed": SEED,
        "training": ff.LocalTraining(epochs=3, batch=16, lr=0.01),
        "server": ff.ServerConfig(fraction=0.5),
        "log": ff.Log(),
    }
    return {**settings, **changes}


def node_of(user: UserId) -> int:
    """Users are dealt out to the nodes in turn."""
    return 101 + USERS.index(user) % NODES


def key_of(node: int) -> str:
    return f"ecdsa-sha2-nistp384 KEY{node} node-{node}"


class Simulated:
    """On the simulation."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.away: set[UserId] = set()
        self.fed = ff.Federation(
            TRAIN, path=folder / "run", offline=lambda _, user: user in self.away, **options(**changes)
        )

    def disconnect(self, *nodes: int) -> None:
        """Only these nodes are out of reach from now on."""
        self.away = {user for user in USERS if node_of(user) in nodes}

    @property
    def public(self) -> GlobalParameters:
        return self.fed.public

    @property
    def history(self) -> History:
        return self.fed.history

    def train(self, rounds: int) -> None:
        self.fed.fit(rounds=rounds)

    def forget(self, users: Sequence[UserId], method: Method, require: float = 0.0) -> Receipt:
        return self.fed.forget(users, method, require=require)

    def private(self, user: UserId) -> np.ndarray:
        return self.fed.devices.private(user)

    def measure(self) -> dict[str, Any]:
        return self.fed.evaluate(TEST).to_dict()

    def close(self) -> None:
        self.fed.close()


class OnFlower:
    """On Flower's apps, in this process: the server app's service, and nodes that host several users each."""

    def __init__(self, folder: Path, timeout: float = 0.5, **changes: Any) -> None:
        self.run = folder / "run"
        self.timeout = timeout
        self.states = {101 + place: folder / f"node-{place}" for place in range(NODES)}
        self.grid = InProcessGrid(self.states)
        self.invitation = self._begin(RunConfig(engine="flower", **options(**changes)))
        self.service = self._open()

    def _begin(self, config: RunConfig) -> Invitation:
        begun = self.run.exists()
        invitation = create_federation(self.run, config, TRAIN.item_ids.tolist())
        if begun:
            return invitation
        with closing(NodeRegistry(self.run)) as registry:
            for node, state in self.states.items():
                own = [user for user in USERS if node_of(user) == node]
                registry.register(key_of(node), node, own)
                for user in own:
                    Device(state).join(invitation, user, TRAIN.item_ids_of(user), TEST.item_ids_of(user), secret="")
        return invitation

    def _open(self) -> Service:
        def fleet(config: RunConfig, registry: NodeRegistry) -> FlowerFleet:
            return FlowerFleet(self.grid, config, registry, self.timeout, deadline=0, replay_share=0.0)

        return Service(self.run, fleet)

    def restart(self) -> None:
        """The server's process ends and another begins."""
        self.service.close()
        self.service = self._open()

    def disconnect(self, *nodes: int) -> None:
        """Only these nodes are out of reach from now on."""
        self.grid.online = set(self.states) - set(nodes)

    @property
    def public(self) -> GlobalParameters:
        return self.service.public

    @property
    def history(self) -> History:
        return self.service.history

    def train(self, rounds: int) -> None:
        self.service.serve(rounds)

    def forget(self, users: Sequence[UserId], method: Method, require: float = 0.0) -> Receipt:
        """As an operator does: queue the request, and let the server carry it out."""
        request = ErasureRequest.new(users, method.settings(), require)
        ErasureQueue(self.run).add(request)
        self.service.serve(self.service.rounds)
        done = {receipt.request: receipt for receipt in self.service.receipts()}
        if request.id not in done:
            raise QuorumError(self.service.queue.refused()[request.id], "")
        return done[request.id]

    def member(self, user: UserId) -> Member:
        return Member(UserFiles(self.states[node_of(user)] / self.service.config.id, self.service.config.id), user)

    def private(self, user: UserId) -> np.ndarray:
        """What a user's device would go on from if it were asked now."""
        (order,) = self.service.fleet.orders(self.history, self.history, {self.service.rounds + 1: [user]}).values()
        public = self.service.public
        found: list[np.ndarray] = []

        def look(devices: Devices, *_: Any) -> tuple[int, dict[str, float]]:
            found.append(devices.private(user).copy())
            return no_users()

        with patch.object(host, "evaluate_locally", look), patch.object(host, "_refused_sums", lambda *_: {}):
            Host(self.states[node_of(user)]).evaluate(order, (public.items, public.dense))
        (private,) = found
        return private

    def measure(self) -> dict[str, Any]:
        return self.service.evaluate().to_dict()

    def close(self) -> None:
        self.service.close()
