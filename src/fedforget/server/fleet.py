"""Fleet: the devices of a federation on a network, as the server sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedforget.models import GlobalParameters
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.history import History
from fedforget.server.node_registry import WipeOrder


@dataclass(frozen=True)
class FleetEvaluation:
    """Means of the metrics that devices computed, over ``users`` users; ``failures`` are users without a result."""

    k: int
    users: int
    sampled: Mapping[str, float]
    full: Mapping[str, float]
    failures: Mapping[UserId, str]

    def to_dict(self) -> dict[str, Any]:
        """The means as plain values."""
        return {"k": self.k, "users": self.users, "sampled": dict(self.sampled), "full": dict(self.full)}


class Fleet(Protocol):
    """How the server reaches the devices of its federation."""

    def clients(self, history: History, in_service: History) -> Clients:
        """The devices on the trajectory of ``history``, while that of ``in_service`` is in service."""

    def evaluate(self, history: History, public: GlobalParameters, users: Sequence[UserId]) -> FleetEvaluation:
        """Evaluate a model on the devices, with the users' test items."""

    def remove_items(self, history: History, public: GlobalParameters, users: Sequence[UserId]) -> None:
        """Ask the users' devices to go to the trajectory in service and to remove what was erased."""

    def wipe(self, orders: Sequence[WipeOrder]) -> list[WipeOrder]:
        """Send wipe orders to devices; returns those that were confirmed."""
