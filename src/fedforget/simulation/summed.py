"""SummedClients: clients of which the server learns only sums, as with secure aggregation on a network.

Masks cancel in a sum modulo 2^32, so the simulation adds up the same whole numbers without them, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedforget.device.devices import Devices
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.fixed_point import SumFormat, add_up
from fedforget.protocol.tasks import Asked, Task
from fedforget.protocol.updates import CohortResult, Total, Updates
from fedforget.server.clients import Clients


class SummedClients:
    """Adds up the updates of each round, if there are enough of them."""

    def __init__(self, clients: Clients, devices: Devices) -> None:
        self.clients = clients
        self.devices = devices

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> Mapping[int, CohortResult]:
        """Run a task; the sum of each round."""
        results = self.clients.run(task, asked, public)
        size = None if public is None else public.items.shape[0]
        return {
            round_: self._summed(round_, len(asked[round_]), result, size or self.devices.size(round_))
            for round_, result in results.items()
        }

    def apply_factors(self, round_: int, factors: Factors) -> None:
        self.clients.apply_factors(round_, factors)

    def _summed(self, round_: int, asked: int, result: CohortResult, n_items: int) -> CohortResult:
        config, none = self.devices.config, Updates.none()
        fresh, stored = result.updates, result.stored
        if stored is not None:  # a device sends both or neither
            fresh, stored = _of(fresh, stored), _of(stored, fresh)
        if len(fresh) < config.training.sum_over:
            missing = dict.fromkeys(fresh.users, reasons.TOO_FEW)
            return replace(result, updates=none, stored=None, failures={**result.failures, **missing})
        model = config.model
        sums = SumFormat(n_items, model.dim, model.update_layout.size, config.bounds, asked)
        return replace(
            result,
            updates=none,
            stored=None,
            total=self._total(fresh, sums, round_),
            stored_total=None if stored is None else self._total(stored, sums, round_),
        )

    def _total(self, updates: Updates, sums: SumFormat, round_: int) -> Total:
        place = self.devices.interactions.user_index_of
        keys = self.devices.draw_keys[np.array([place[user] for user in updates.users], np.int64)]
        return add_up(updates, sums, keys, round_, self.devices.config.seed)


def _of(updates: Updates, others: Updates) -> Updates:
    """The updates of users who are among others too."""
    users = set(others.users)
    return updates.only(np.array([user in users for user in updates.users], bool))
