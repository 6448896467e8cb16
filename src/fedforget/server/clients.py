"""Clients: the server's view of the devices, in process or over a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedforget.models import GlobalParameters
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Asked, Task
from fedforget.protocol.updates import CohortResult


class Clients(Protocol):
    """The devices of a federation on one trajectory. Asking again for the same round gives the same result."""

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> Mapping[int, CohortResult]:
        """Run a task on the devices of the users asked for each round; the result of each round.

        A device gets one message for all its rounds. ``public`` are the global parameters, for tasks that need them.
        """

    def apply_factors(self, round_: int, factors: Factors) -> None:
        """Send the factors of a replayed round to the devices that wait for them."""
