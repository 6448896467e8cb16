"""Attack: which users are malicious, for experiments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedforget.errors import ConfigError
from fedforget.runtime import randomness
from fedforget.runtime.randomness import UserId, user_key


@dataclass(frozen=True)
class Attack:
    """Malicious users and γmax, the largest factor by which they flip their updates (see ``simulation.poisoned``)."""

    users: Sequence[UserId]
    gamma: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", tuple(user if isinstance(user, str) else int(user) for user in self.users))
        if not self.users:
            raise ConfigError("The attack has no users.", "Name at least one, or draw them: Attack.by(users, 0.2).")
        if not self.gamma > 0:
            raise ConfigError(f"gamma is {self.gamma}.", "Give a factor above 0, such as 4.")

    @classmethod
    def by(cls, users: Sequence[UserId], share: float, *, gamma: float = 4.0, seed: int = 0) -> Attack:
        """An attack by a random share of the users."""
        if not 0 < share < 1:
            raise ConfigError(
                f"The share of malicious users is {share}.", "Give a fraction between 0 and 1, such as 0.2."
            )
        keys = np.array([user_key(user) for user in users], np.uint64)
        lots = randomness.priorities(seed, randomness.MALICIOUS, 0, keys)
        chosen = np.sort(np.argsort(lots, kind="stable")[: max(1, round(share * len(users)))])
        return cls([users[place] for place in chosen], gamma)

    def without(self, users: Collection[UserId]) -> Attack | None:
        """The attack without some users; None if nobody is left."""
        remaining = [user for user in self.users if user not in users]
        return replace(self, users=remaining) if remaining else None

    def to_dict(self) -> dict[str, Any]:
        return {"users": list(self.users), "gamma": self.gamma}
