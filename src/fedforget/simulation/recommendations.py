"""Recommendations for the users of a simulation, and the vectors that they are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedforget.device.recommendation import Best, allowed_items, best_items
from fedforget.errors import ConfigError
from fedforget.runtime.randomness import ItemId, UserId

if TYPE_CHECKING:
    from fedforget.simulation.federation import Federation


def for_user(
    fed: Federation, user: UserId, k: int, candidates: Sequence[ItemId] | None, exclude: Sequence[ItemId]
) -> list[tuple[ItemId, float]]:
    """The k best items for a user, best first, with their scores."""
    best = _best(fed, np.array([fed.train.user_index(user)]), k, candidates, exclude)
    found = best.items[0] >= 0
    return list(zip(fed.train.item_ids[best.items[0][found]].tolist(), best.scores[0][found].tolist(), strict=True))


def for_users(
    fed: Federation, users: Sequence[UserId], k: int, candidates: Sequence[ItemId] | None, exclude: Sequence[ItemId]
) -> pl.DataFrame:
    """The k best items for several users: a data frame of user, rank, item and score."""
    places = np.array([fed.train.user_index(user) for user in users], np.int64)
    best = _best(fed, places, k, candidates, exclude)
    row, rank = np.nonzero(best.items >= 0)
    return pl.DataFrame(
        {
            "user": pl.Series(fed.train.user_ids[places[row]].tolist()),
            "rank": rank + 1,
            "item": pl.Series(fed.train.item_ids[best.items[row, rank]].tolist()),
            "score": best.scores[row, rank],
        }
    )


def item_vectors(fed: Federation) -> pl.DataFrame:
    """The item vectors: a data frame of item and vector."""
    ids = pl.Series(fed.train.item_ids[: fed.public.items.shape[0]].tolist())
    return pl.DataFrame({"item": ids, "vector": fed.public.items})


def user_vectors(fed: Federation) -> pl.DataFrame:
    """The user vectors of a model that scores by a dot product: a data frame of user and vector."""
    vectors = fed.devices.user_vectors(fed.public)
    if vectors is None:
        raise ConfigError(f"{fed.model.name} has no user vectors to export.", "Use ials, lightgcn or mf.")
    rows = vectors(np.arange(fed.train.n_users))
    return pl.DataFrame({"user": pl.Series(fed.members), "vector": np.ascontiguousarray(rows)})


def _best(
    fed: Federation,
    places: NDArray[np.int64],
    k: int,
    candidates: Sequence[ItemId] | None,
    exclude: Sequence[ItemId],
) -> Best:
    n_items = fed.public.items.shape[0]
    allowed = allowed_items(fed.train.item_index, fed.train.n_items, candidates, exclude)
    excluded = [fed.train, *([] if fed.test is None else [fed.test])]
    return best_items(
        fed.devices.row_scorer(fed.public),
        places,
        k,
        n_items,
        [part.up_to(n_items) for part in excluded],
        fed.devices.workers,
        None if allowed.all() else allowed[:n_items],
    )
