"""The fixed candidate items against which the sampled protocol ranks each test item."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact


@exact
def draw_candidates(
    n_items: int, touched: NDArray[np.int32], n_tests: int, per_test: int, seed: int, user_key: np.uint64
) -> NDArray[np.int32]:
    """For each of a user's test items, ``per_test`` distinct items without an interaction of the user.

    The draw is keyed by (seed, user), so it is the same at every evaluation. If there are fewer such items, all of them
    are taken.
    """
    mask = np.zeros(n_items, np.uint8)
    for item in touched:
        mask[item] = 1
    free = np.empty(n_items - int(mask.sum()), np.int32)
    place = 0
    for item in range(n_items):
        if mask[item] == 0:
            free[place] = item
            place += 1
    size = min(per_test, free.size)
    state = randomness.stream(seed, randomness.CANDIDATES, 0, user_key)
    out = np.empty((n_tests, size), np.int32)
    for test in range(n_tests):
        randomness.choose(state, free, size)
        out[test] = free[:size]
    return out
