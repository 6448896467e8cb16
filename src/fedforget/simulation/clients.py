"""SimulatedClients: the devices of a simulation, called directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedforget.device.devices import Devices
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Asked, Task
from fedforget.protocol.updates import CohortResult
from fedforget.runtime.randomness import UserId

#: Whether a user's device is offline in a round, for experiments.
Offline = Callable[[int, UserId], bool]


class SimulatedClients:
    """Implements the server's ``Clients`` by calling the devices."""

    def __init__(self, devices: Devices, offline: Offline | None = None) -> None:
        self.devices = devices
        self.offline = offline

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> dict[int, CohortResult]:
        """Run a task on the devices that are online in the first of the rounds asked for."""
        if self.offline is None:
            return self.devices.run(task, asked, public)
        first = min(asked)
        offline = {user for users in asked.values() for user in users if self.offline(first, user)}
        online = {round_: [user for user in users if user not in offline] for round_, users in asked.items()}
        results = self.devices.run(task, online, public)
        for round_, result in results.items():
            missing = {user: reasons.NO_RESPONSE for user in asked[round_] if user in offline}
            results[round_] = replace(result, failures={**missing, **result.failures})
        return results

    def apply_factors(self, round_: int, factors: Factors) -> None:
        self.devices.apply_factors(round_, factors)
