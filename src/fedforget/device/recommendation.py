"""Recommendation: the best items for users of a device, or for all users of a simulation at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.data.ids import Id
from fedforget.device.scoring import RowScorer
from fedforget.errors import ConfigError
from fedforget.models.parameters import Array
from fedforget.runtime.workers import Places, Workers, taken

#: Numbers in the score matrix of one piece of work: it should stay in the cache of a core.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Best:
    """The best items of some users, best first, as positions in the catalogue; -1 where there are no more."""

    items: NDArray[np.int64]
    scores: Array


def best_items(
    score: RowScorer,
    places: NDArray[np.int64],
    k: int,
    n_items: int,
    excluded: Sequence[Interactions],
    workers: Workers,
    allowed: NDArray[np.bool_] | None = None,
) -> Best:
    """The k best items for the users at some positions, without their ``excluded`` ones.

    ``allowed`` marks the items that may be recommended; by default all. Equal scores are in the order of the catalogue.
    """
    if k < 1:
        raise ConfigError(f"k is {k}.", "Ask for at least one recommendation.")
    k = min(k, n_items)
    found = Best(np.full((places.size, k), -1, np.int64), np.full((places.size, k), np.nan, np.float32))
    size = max(1, BLOCK // max(n_items, 1))
    starts = np.arange(0, places.size, size)

    def run(order: Places, counter: Places) -> None:
        for block in taken(order, counter):
            rows = slice(starts[block], starts[block] + size)
            users = places[rows]
            scores = score(users)
            for part in excluded:
                ptr, own = part.rows(users)
                scores[np.repeat(np.arange(users.size), np.diff(ptr)), own] = -np.inf
            if allowed is not None:
                scores[:, ~allowed] = -np.inf
            best = _top(scores, k)
            values = np.take_along_axis(scores, best, axis=1)
            there = np.isfinite(values)
            found.items[rows] = np.where(there, best, -1)
            found.scores[rows] = np.where(there, values, np.nan)

    workers.run(run, costs=np.ones(starts.size, np.int64))
    return found


def allowed_items(
    position: Callable[[Id], int], n_items: int, candidates: Sequence[Id] | None, exclude: Sequence[Id]
) -> NDArray[np.bool_]:
    """Which items may be recommended: the candidates (default: all) without those to exclude."""
    allowed = np.full(n_items, candidates is None)
    allowed[[position(item) for item in candidates or ()]] = True
    allowed[[position(item) for item in exclude]] = False
    return allowed


def _top(scores: Array, k: int) -> NDArray[np.int64]:
    """The positions of the k largest values of each row, in descending order; equal ones in ascending position."""
    if k < scores.shape[1]:
        candidates = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    else:
        candidates = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, candidates, axis=1), axis=1, kind="stable")
    return np.take_along_axis(candidates, order, axis=1)
