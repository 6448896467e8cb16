"""Attack: malicious users who flip their updates and add noise, for experiments on recovery.

Instead of its update M a malicious client sends -γ·M + μ for every public tensor, where γ is drawn between 0 and γmax
for each client and round, and μ is normal noise with the mean and the standard deviation that M itself has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedforget import randomness
from fedforget.compiled import exact
from fedforget.errors import ConfigError
from fedforget.models import Layout, Public
from fedforget.models.parameters import Array
from fedforget.randomness import UserId, user_key
from fedforget.replay import Factors, Replay
from fedforget.server.clients import Clients
from fedforget.updates import Answers, Updates


@dataclass(frozen=True)
class Attack:
    """Who is malicious, and γmax, how strongly they push back."""

    users: Sequence[UserId]
    gamma: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", tuple(_plain(user) for user in self.users))
        if not self.users:
            raise ConfigError("The attack has no users.", "Name at least one, or draw them: Attack.by(users, 0.2).")
        if not self.gamma > 0:
            raise ConfigError(f"gamma is {self.gamma}.", "γmax is the largest factor: above 0; 4 does clear damage.")

    @classmethod
    def by(cls, users: Sequence[UserId], share: float, *, gamma: float = 4.0, seed: int = 0) -> Attack:
        """Let this share of the users, drawn at random, be malicious."""
        if not 0 < share < 1:
            raise ConfigError(f"The share of malicious users is {share}.", "Give a share between 0 and 1, such as 0.2.")
        keys = np.array([user_key(user) for user in users], np.uint64)
        lots = randomness.priorities(seed, randomness.MALICIOUS, 0, keys)
        chosen = np.sort(np.argsort(lots, kind="stable")[: max(1, round(share * len(users)))])
        return cls([users[place] for place in chosen], gamma)

    def without(self, users: Collection[UserId]) -> Attack | None:
        """The attack of those who are left."""
        left = [user for user in self.users if user not in users]
        return replace(self, users=left) if left else None

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for TOML."""
        return {"users": list(self.users), "gamma": self.gamma}


def _plain(user: UserId) -> UserId:
    """A user's id, also one from an array, as TOML can hold it."""
    return user if isinstance(user, str) else int(user)


class Poisoned:
    """Clients of whom some send poison. What a device logs is its own business: the poison is on the way out.

    ``layout`` says which tensors a client sends beside item rows.
    """

    def __init__(self, clients: Clients, attack: Attack, seed: int, layout: Layout) -> None:
        self.clients = clients
        self.layout = layout
        self.attack = attack
        self.seed = seed
        self._malicious = set(attack.users)

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Let these users train, and poison what malicious ones send."""
        return self._poison(round_, self.clients.train(round_, public, users, epochs))

    def replay(self, asked: Mapping[int, Sequence[UserId]], public: Public, how: Replay) -> dict[int, Answers]:
        """Let users replay rounds, and poison what malicious ones send."""
        answers = self.clients.replay(asked, public, how)
        return {round_: self._poison(round_, answer) for round_, answer in answers.items()}

    def settle(self, round_: int, factors: Factors) -> None:
        """Pass it on."""
        self.clients.settle(round_, factors)

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Pass it on."""
        return self.clients.recall(round_, users, n_items)

    def _poison(self, round_: int, answers: Answers) -> Answers:
        honest = answers.updates
        malicious = np.array([user in self._malicious for user in honest.users], bool)
        if not malicious.any():
            return answers
        rows, dense = honest.rows.copy(), honest.dense.copy()
        keys = np.array([user_key(user) for user in honest.users], np.uint64)
        _poison_clients(
            np.flatnonzero(malicious), honest.ptr, rows.reshape(-1), honest.rows.shape[1], dense, self.layout.bounds,
            randomness.priorities(self.seed, randomness.ATTACK, round_, keys), self.attack.gamma,
        )  # fmt: skip
        poisoned = Updates(honest.users, honest.ptr, honest.items, rows, dense, honest.sizes, honest.losses)
        return replace(answers, updates=poisoned)


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
