"""Made-up signals of users in paired worlds, whose memory is known because it was put there."""

from __future__ import annotations

import numpy as np

from fedforget.evaluation.forgetting.scores import Flags, Floats, Ints


def halves(worlds: int, users: int, rng: np.random.Generator) -> tuple[Flags, Ints, Ints]:
    """Who takes part (a random half in each even world, the others in the next), pairs of worlds, and their folds."""
    inside = np.zeros((worlds, users), bool)
    for world in range(0, worlds, 2):
        inside[world, rng.permutation(users)[: users // 2]] = True
        inside[world + 1] = ~inside[world]
    pairs = np.arange(worlds) // 2
    return inside, pairs, pairs % 4


def normal_signals(inside: Flags, shifts: list[float], rng: np.random.Generator, *, of_world: float = 0.5) -> Floats:
    """Signals with an effect of the user, of the world, and of having taken part (``shifts``, one for each kind)."""
    worlds, users = inside.shape
    kinds = [
        3 * rng.normal(size=users)
        + of_world * rng.normal(size=(worlds, 1))
        + rng.normal(size=(worlds, users))
        + shift * inside
        for shift in shifts
    ]
    return np.stack(kinds, axis=2)
