"""Fleet: devices on a network as a server sees them, beyond the rounds of one trajectory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.history import History
from fedforget.server.registry import WipeOrder


@dataclass(frozen=True)
class Measured:
    """What devices found when they evaluated a model on themselves: means over ``users`` users, and who is missing."""

    k: int
    users: int
    sampled: Mapping[str, float]
    full: Mapping[str, float]
    failures: Mapping[UserId, str]

    def to_dict(self) -> dict[str, Any]:
        """The means, for JSON."""
        return {"k": self.k, "users": self.users, "sampled": dict(self.sampled), "full": dict(self.full)}


class Fleet(Protocol):
    """How a server reaches the devices of its federation."""

    def clients(self, history: History, in_service: History) -> Clients:
        """The devices on the trajectory of a history, while that of another (or the same) is in service."""

    def measure(self, history: History, public: Public, users: Sequence[UserId]) -> Measured:
        """Let these users' devices evaluate a model, each on what it has kept back."""

    def wipe(self, orders: Sequence[WipeOrder]) -> list[WipeOrder]:
        """Have devices wipe users who left; the orders that were confirmed."""
