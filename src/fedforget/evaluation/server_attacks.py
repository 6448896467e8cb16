"""Attacks of a curious server on one user: a score for each item, higher for those that look like the user's own.

Each attack uses one property of what the server receives. A score says nothing by its value, only by its order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.models.parameters import Array
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact

Scores = NDArray[np.float64]
Items = NDArray[np.int32]


@dataclass(frozen=True)
class Received:
    """One update as the server receives it, and what else it knows.

    ``rows`` belong to ``items``, in the order in which they were sent. ``guess`` is the key of the user's random draws
    as the server can compute it from the seed, the round and the user's id. ``side`` is the sign of own items along the
    first principal component: the same for all users of a model, so the server learns it from a device of its own.
    """

    items: Items
    rows: Array
    guess: np.uint64
    n_items: int
    side: int = 1


def order(update: Received) -> Scores:
    """The place of a row in the update, compared with that in the catalogue's order: own items may come first."""
    in_catalogue = np.argsort(np.argsort(update.items, kind="stable"))
    return (in_catalogue - np.arange(update.items.size)).astype(np.float64)


def seed(update: Received) -> Scores:
    """The draw of negatives, repeated: they come early in it, own items anywhere."""
    return draw_places(update.guess, update.n_items)[update.items].astype(np.float64)


def direction(update: Received) -> Scores:
    """A row's part along the first principal component, whose sign is that of the sum of all rows."""
    along = update.rows @ _first_component(update.rows)
    return np.asarray(along * (update.side if along.sum() >= 0 else -update.side), np.float64)


def length(update: Received) -> Scores:
    """The length of a row."""
    return np.asarray(np.linalg.norm(update.rows, axis=1), np.float64)


#: Attacks on the rows of one update, by name.
ROW_ATTACKS: dict[str, Callable[[Received], Scores]] = {
    "order": order,
    "seed": seed,
    "direction": direction,
    "length": length,
}


def auc(scores: Scores, own: NDArray[np.bool_]) -> float | None:
    """The probability that an own item has a higher score than another one; ties count half. None without either."""
    n_own, n_other = int(own.sum()), int((~own).sum())
    if not n_own or not n_other:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    return float((ranks[own].sum() - n_own * (n_own + 1) / 2) / (n_own * n_other))


def precision(scores: Scores, own: NDArray[np.bool_]) -> float | None:
    """The fraction of own items among as many items with the highest scores; expected over the order of ties."""
    count = int(own.sum())
    if not count:
        return None
    limit = np.partition(scores, -count)[-count]
    above, tied = scores > limit, scores == limit
    share = (count - above.sum()) / tied.sum()
    return float((own[above].sum() + share * own[tied].sum()) / count)


@exact
def draw_places(key: np.uint64, n_items: int) -> NDArray[np.int32]:
    """The place of each item in the random order in which negatives are drawn (``device.negative_draw``)."""
    state = np.empty(1, np.uint64)
    state[0] = key
    deck = np.arange(n_items).astype(np.int32)
    for i in range(n_items):
        j = i + randomness.below(state, n_items - i)
        kept = deck[i]
        deck[i] = deck[j]
        deck[j] = kept
    places = np.empty(n_items, np.int32)
    for i in range(n_items):
        places[deck[i]] = i
    return places


def _first_component(rows: Array) -> Array:
    """The direction in which rows differ most."""
    wide = rows.astype(np.float64)
    _, vectors = np.linalg.eigh(wide.T @ wide)
    component: Array = vectors[:, -1].astype(np.float32)
    return component
