"""Who leaves: the cases of an audit, and who takes part in which of its worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedforget.data import Interactions
from fedforget.errors import ConfigError, DataError, unknown_choice
from fedforget.evaluation.forgetting.scores import Flags, Floats, Ints
from fedforget.runtime import randomness

#: Users with fewer items are no candidates: half of their items would say nothing.
LEAST_ITEMS = 4


@dataclass(frozen=True)
class Case:
    """A kind of leavers. The eligible users with the highest ``rank`` are candidates; without it random ones."""

    label: str
    description: str
    rank: Callable[[Interactions], Floats] | None = None
    alone: bool = False
    malicious: bool = False


def _rarity(data: Interactions) -> Floats:
    """The mean rarity (1 / number of users) of each user's items."""
    return _exposure(data) / np.maximum(data.counts, 1)


def _exposure(data: Interactions) -> Floats:
    """The sum of the rarity of each user's items: much for one with many items that few others have."""
    rare = 1 / np.maximum(np.bincount(data.indices, minlength=data.n_items), 1)
    users, items = data.pairs()
    return np.bincount(users, rare[items], minlength=data.n_users).astype(np.float64)


CASES: dict[str, Case] = {
    "random": Case("random users", "Users drawn at random."),
    "heavy": Case("heaviest users", "The users with the most items.", lambda data: data.counts.astype(np.float64)),
    "rare": Case("users with rare items", "The users whose items are shared by the fewest others.", _rarity),
    "single": Case(
        "a single user", "One user alone: one of the two with the most rare items.", _exposure, alone=True
    ),
    "malicious": Case(
        "malicious users", "Random users who send poisoned updates; what they pushed, not whether they are seen.",
        malicious=True,
    ),
}  # fmt: skip
#: Cases in which members are looked for; the other measures poison.
ATTACKED = tuple(name for name, case in CASES.items() if not case.malicious)


def check_cases(names: tuple[str, ...]) -> None:
    """Refuse unknown cases, or none."""
    for name in names:
        if name not in CASES:
            raise unknown_choice("case", name, list(CASES))
    if not any(name in ATTACKED for name in names):
        raise ConfigError(f"cases is {','.join(names)!r}.", f"Name at least one of {', '.join(ATTACKED)}.")


def candidates(name: str, data: Interactions, leavers: float, seed: int) -> Ints:
    """The users (indices) of whom a half takes part in each world and leaves; ``leavers`` is their share of all."""
    case = CASES[name]
    eligible = np.flatnonzero(data.counts >= LEAST_ITEMS)
    count = 2 if case.alone else 2 * max(1, round(leavers * data.n_users))
    if not 0 < leavers <= 0.25 or count > eligible.size or count >= data.n_users - 1:
        raise DataError(
            f"leavers is {leavers}: {data.n_users:,} users have not twice as many candidates for an audit.",
            f"Give a share above 0, at most 0.25; candidates need {LEAST_ITEMS} or more training items.",
        )
    lots = randomness.priorities(seed, randomness.AUDIT, 0, data.user_keys[eligible])
    keys = (lots,) if case.rank is None else (lots, -case.rank(data)[eligible])
    return np.sort(eligible[np.lexsort(keys)[:count]])


def taking_part(name: str, number: int, data: Interactions, users: Ints, seed: int) -> Flags:
    """Which candidates take part in a world: a random half in each even one, and the others in the next."""
    pair = 1 + len(CASES) * (number // 2) + list(CASES).index(name)
    lots = randomness.priorities(seed, randomness.AUDIT, pair, data.user_keys[users])
    inside = np.zeros(users.size, bool)
    inside[np.argsort(lots, kind="stable")[: users.size // 2]] = True
    return inside if number % 2 == 0 else ~inside


def world_seed(name: str, number: int, seed: int) -> int:
    """The seed of the federation of a world: the same for both worlds of a pair.

    So the worlds of a pair differ in who takes part, and in nothing else: what chance does to a model is the same in
    both, and a method that leaves nothing of the leavers gives (nearly) the same model in both.
    """
    pair = 1 + len(CASES) * (number // 2) + list(CASES).index(name)
    return int(randomness.key(seed, randomness.AUDIT, pair, np.uint64(0))) >> 1
