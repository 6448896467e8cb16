"""Synthetic interactions of any size, with realistic structure, generated from a seed.

Every item belongs to one taste. Popularity follows Zipf's law within a taste and over all items. A user has a first and
a second taste and draws most items from those, the rest by popularity only. The number of items per user is log-normal.
Each user has its own random stream, so user 7 has the same items whatever the number of users.
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

#: The purpose of a stream, in place of a round.
DRAWS, ORDER, ACTIVITY = 0, 1, 2

FEWEST_ITEMS = 5
ZIPF_EXPONENT = 0.8
ACTIVITY_SPREAD = 1.0
FIRST_TASTE_SHARE = 0.6
SECOND_TASTE_SHARE = 0.25
#: After this many draws of items that the user already has, the next free item number is taken instead.
MOST_REPEATS = 32


def synthetic(
    users: int = 1000, items: int = 1000, tastes: int = 8, mean_items: float = 30, seed: int = 0
) -> Interactions:
    """Generate interactions of this many users and items, with about ``mean_items`` per user.

    Every user has at least 5 items (or all, if there are fewer) and at most half of them (or 5), so that items are left
    to recommend. Ids are the numbers from 0, including items that no user has.
    """
    for name, value in (("users", users), ("items", items), ("tastes", tastes), ("mean_items", mean_items)):
        _check_range(name, value, 1)
    fewest = min(FEWEST_ITEMS, items)
    indptr = offsets(_activity(seed, users, fewest, max(fewest, items // 2), mean_items))
    indices = np.empty(indptr[-1], np.int32)
    _draw_all(seed, *_groups(seed, items, min(tastes, items)), indptr, indices)
    return Interactions(np.arange(users), np.arange(items), indptr, indices)


def checkerboard(users: int = 40, items: int = 40, tastes: int = 2, share: float = 0.7, seed: int = 0) -> Interactions:
    """Generate data with obvious right recommendations: user u only has items i with i % tastes == u % tastes.

    A user has a random ``share`` of the items of its taste: at least two and, if there are three or more, not all of
    them. The others of that taste are the right recommendations.
    """
    _check_range("users", users, 1)
    _check_range("tastes", tastes, 1)
    _check_range("items", items, 2 * tastes)
    if not 0 < share <= 1:
        raise ConfigError(f"The share is {share}.", "Give a share above 0 and at most 1.")
    rows = []
    for user in range(users):
        taste_items = np.arange(user % tastes, items, tastes, dtype=np.int32)
        n = max(2, min(taste_items.size - 1, round(share * taste_items.size)))
        randomness.choose(randomness.stream(seed, SYNTHETIC, DRAWS, np.uint64(user)), taste_items, n)
        rows.append(np.sort(taste_items[:n]))
    indptr = offsets([row.size for row in rows])
    return Interactions(np.arange(users), np.arange(items), indptr, np.concatenate(rows))


def _groups(seed: int, items: int, tastes: int) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
    """The items, cumulative weights and start of each group: one group per taste, and a last one of all items."""
    order = np.arange(items, dtype=np.int32)
    randomness.shuffle(randomness.stream(seed, SYNTHETIC, ORDER, np.uint64(0)), order)
    weights = np.arange(1, items + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    parts = [slice(taste, None, tastes) for taste in range(tastes)] + [slice(None)]
    starts = offsets([order[part].size for part in parts])
    cumulative = np.concatenate([np.cumsum(weights[part]) for part in parts])
    return np.concatenate([order[part] for part in parts]), cumulative, starts


@exact
def _activity(seed: int, users: int, fewest: int, most: int, mean: float) -> NDArray[np.int64]:
    """The number of items of each user: the fewest plus a log-normal number."""
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
    grouped: NDArray[np.int32],
    cumulative: NDArray[np.float64],
    starts: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
) -> None:
    """Fill every user's row. ``owner`` is the last user who got an item, so it need not be cleared between users."""
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
                item = _draw(state, first, second, grouped, cumulative, starts)
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
    grouped: NDArray[np.int32],
    cumulative: NDArray[np.float64],
    starts: NDArray[np.int64],
) -> int:
    """An item from the group of the first taste, of the second taste, or of all items."""
    kind = randomness.uniform(state)
    group = starts.size - 2
    if kind < FIRST_TASTE_SHARE:
        group = first
    elif kind < FIRST_TASTE_SHARE + SECOND_TASTE_SHARE:
        group = second
    weights = cumulative[starts[group] : starts[group + 1]]
    position = np.searchsorted(weights, randomness.uniform(state) * weights[-1], "right")
    return int(grouped[starts[group] + min(position, weights.size - 1)])


def _check_range(name: str, value: float, least: int) -> None:
    if not least <= value <= MOST_IDS:
        raise ConfigError(f"{name} is {value}.", f"Give at least {least} and at most {MOST_IDS}.")
