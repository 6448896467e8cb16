"""PoisonedClients: clients of which some are malicious.

Instead of its update M a malicious client sends -γ·M + μ for every tensor, where γ is drawn between 0 and γmax for each
client and round, and μ is normal noise with the mean and the standard deviation of M.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedforget.models import GlobalParameters, Layout
from fedforget.models.parameters import Array
from fedforget.protocol.attack import Attack
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Asked, Recall, Task
from fedforget.protocol.updates import CohortResult
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.randomness import user_key
from fedforget.server.clients import Clients


class PoisonedClients:
    """Poisons the updates that malicious clients send. Their logs hold the honest updates.

    ``layout`` describes the tensors that a client sends beside item rows.
    """

    def __init__(self, clients: Clients, attack: Attack, seed: int, layout: Layout) -> None:
        self.clients = clients
        self.layout = layout
        self.attack = attack
        self.seed = seed
        self._malicious = set(attack.users)

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> Mapping[int, CohortResult]:
        """Run a task, and poison the updates of malicious clients; logged updates are not poisoned."""
        results = self.clients.run(task, asked, public)
        if isinstance(task, Recall):
            return results
        return {round_: self._poisoned(round_, result) for round_, result in results.items()}

    def apply_factors(self, round_: int, factors: Factors) -> None:
        self.clients.apply_factors(round_, factors)

    def _poisoned(self, round_: int, result: CohortResult) -> CohortResult:
        honest = result.updates
        malicious = np.array([user in self._malicious for user in honest.users], bool)
        if not malicious.any():
            return result
        rows, dense = honest.rows.copy(), honest.dense.copy()
        users = np.array([user_key(user) for user in honest.users], np.uint64)
        keys = randomness.priorities(self.seed, randomness.ATTACK, round_, users)
        clients, gamma = np.flatnonzero(malicious), self.attack.gamma
        _poison_clients(clients, honest.ptr, rows.reshape(-1), rows.shape[1], dense, self.layout.bounds, keys, gamma)
        return replace(result, updates=replace(honest, rows=rows, dense=dense))


@exact
def _poison_tensor(values: Array, gamma: float, state: randomness.Stream) -> None:
    """-γ·M + μ in place."""
    if values.size == 0:
        return
    mean = values.mean()
    std = np.sqrt(((values - mean) ** 2).mean())
    noise = np.empty(values.size, np.float32)
    randomness.fill_normal(state, noise, std)
    for i in range(values.size):
        values[i] = -np.float32(gamma) * values[i] + noise[i] + mean


@exact
def _poison_clients(clients, ptr, rows, dim, dense, bounds, keys, gamma_max) -> None:  # type: ignore[no-untyped-def]
    state = np.empty(1, np.uint64)
    for c in clients:
        state[0] = keys[c]
        gamma = gamma_max * randomness.uniform(state)
        _poison_tensor(rows[ptr[c] * dim : ptr[c + 1] * dim], gamma, state)
        for tensor in range(bounds.size - 1):
            _poison_tensor(dense[c, bounds[tensor] : bounds[tensor + 1]], gamma, state)
