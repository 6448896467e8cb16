"""Made-up interactions with real structure, of any size, from a seed.

Every item belongs to one taste. Within a taste, and over all of them, popularity falls as in Zipf's law. A
user has a first and a second taste and draws most items from those, the rest by popularity alone; how many is
long-tailed (log-normal). A user's items come from a random stream of its own, so that user 7 is the same in a
larger crowd.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.data.interactions import MOST_IDS, Interactions
from fedforget.errors import ConfigError
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.ragged import offsets
from fedforget.runtime.randomness import SYNTHETIC, Stream

#: What a stream is drawn for stands where its round would be.
DRAWS, ORDER, ACTIVITY = 0, 1, 2

FEWEST_ITEMS = 5
ZIPF_EXPONENT = 0.8
ACTIVITY_SPREAD = 1.0
FIRST_TASTE_SHARE = 0.6
SECOND_TASTE_SHARE = 0.25
#: After so many draws of items that the user has already, the next free one by number is taken instead.
MOST_REPEATS = 32


def synthetic(
    users: int = 1000, items: int = 1000, tastes: int = 8, mean_items: float = 30, seed: int = 0
) -> Interactions:
    """Make interactions of so many users and items, with about ``mean_items`` a user.

    Every user has at least 5 items (or all, if there are fewer) and, above that, at most half of them, so
    that there is something left to recommend. Ids are the numbers from 0, whether or not an item was drawn.
    """
    _refuse_below("users", users, 1)
    _refuse_below("items", items, 1)
    _refuse_below("tastes", tastes, 1)
    _refuse_below("mean_items", mean_items, 1)
    fewest = min(FEWEST_ITEMS, items)
    counts = _activity(seed, users, fewest, max(fewest, items // 2), mean_items)
    indptr = offsets(counts)
    indices = np.empty(indptr[-1], np.int32)
    _draw_all(seed, *_shelves(seed, items, min(tastes, items)), indptr, indices)
    return Interactions(np.arange(users), np.arange(items), indptr, indices)


def checkerboard(users: int = 40, items: int = 40, tastes: int = 2, share: float = 0.7, seed: int = 0) -> Interactions:
    """Make data whose right answer shows by eye: user u touches only items i with i % tastes == u % tastes.

    Of the items of its colour a user touches the given share, at random: at least two, and one fewer than all
    where there are three or more, so that the untouched ones of that colour are what to recommend.
    """
    _refuse_below("users", users, 1)
    _refuse_below("tastes", tastes, 1)
    _refuse_below("items", items, 2 * tastes)
    if not 0 < share <= 1:
        raise ConfigError(f"The share is {share}.", "Give a share above 0 and at most 1.")
    rows = []
    for user in range(users):
        colour = np.arange(user % tastes, items, tastes, dtype=np.int32)
        n = max(2, min(colour.size - 1, round(share * colour.size)))
        randomness.choose(randomness.stream(seed, SYNTHETIC, DRAWS, np.uint64(user)), colour, n)
        rows.append(np.sort(colour[:n]))
    indptr = offsets([row.size for row in rows])
    return Interactions(np.arange(users), np.arange(items), indptr, np.concatenate(rows))


def _shelves(seed: int, items: int, tastes: int) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
    """A shelf for each taste and a last one for all items: its items, their summed weights, its start."""
    order = np.arange(items, dtype=np.int32)
    randomness.shuffle(randomness.stream(seed, SYNTHETIC, ORDER, np.uint64(0)), order)
    weights = np.arange(1, items + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    parts = [slice(taste, None, tastes) for taste in range(tastes)] + [slice(None)]
    starts = offsets([order[part].size for part in parts])
    summed = np.concatenate([np.cumsum(weights[part]) for part in parts])
    return np.concatenate([order[part] for part in parts]), summed, starts


@exact
def _activity(seed: int, users: int, fewest: int, most: int, mean: float) -> NDArray[np.int64]:
    """How many items each user has: the fewest and a log-normal number more."""
    counts = np.empty(users, np.int64)
    normal = np.empty(1, np.float32)
    for user in range(users):
        state = randomness.stream(seed, SYNTHETIC, ACTIVITY, np.uint64(user))
        randomness.fill_normal(state, normal, ACTIVITY_SPREAD)
        more = max(0.0, mean - fewest) * np.exp(normal[0] - 0.5 * ACTIVITY_SPREAD**2)
        counts[user] = min(most, fewest + int(more + 0.5))
    return counts


@exact
def _draw_all(
    seed: int,
    shelved: NDArray[np.int32],
    summed: NDArray[np.float64],
    starts: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
) -> None:
    """Fill every user's row. ``owner`` tells who took an item last, so that it is never cleared."""
    tastes = starts.size - 2
    owner = np.full(starts[tastes + 1] - starts[tastes], -1, np.int64)
    for user in range(indptr.size - 1):
        state = randomness.stream(seed, SYNTHETIC, DRAWS, np.uint64(user))
        first = randomness.below(state, tastes)
        second = randomness.below(state, tastes)
        row = indices[indptr[user] : indptr[user + 1]]
        for i in range(row.size):
            item = 0
            for _ in range(MOST_REPEATS):
                item = _draw(state, first, second, shelved, summed, starts)
                if owner[item] != user:
                    break
            while owner[item] == user:
                item = (item + 1) % owner.size
            owner[item] = user
            row[i] = item
        row.sort()


@exact
def _draw(
    state: Stream,
    first: int,
    second: int,
    shelved: NDArray[np.int32],
    summed: NDArray[np.float64],
    starts: NDArray[np.int64],
) -> int:
    """An item from the shelf of the first taste, of the second, or of all items."""
    kind = randomness.uniform(state)
    shelf = starts.size - 2
    if kind < FIRST_TASTE_SHARE:
        shelf = first
    elif kind < FIRST_TASTE_SHARE + SECOND_TASTE_SHARE:
        shelf = second
    weights = summed[starts[shelf] : starts[shelf + 1]]
    place = np.searchsorted(weights, randomness.uniform(state) * weights[-1], "right")
    return int(shelved[starts[shelf] + min(place, weights.size - 1)])


def _refuse_below(name: str, value: float, least: int) -> None:
    if not least <= value <= MOST_IDS:
        raise ConfigError(f"{name} is {value}.", f"Give at least {least}, and at most {MOST_IDS}.")
