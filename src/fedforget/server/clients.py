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
        """Let users carry out a task, each for the rounds that it is asked for; the result of each round.

        A device gets one message, whatever the number of its rounds. ``public`` are the global parameters to start
        from, for tasks that need them.
        """

    def apply_factors(self, round_: int, factors: Factors) -> None:
        """Tell the devices of a replay with stored updates how the server scaled their new ones."""
