"""A summary of interactions: counts, density and items per user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.data.interactions import Interactions


@dataclass(frozen=True)
class Summary:
    """Statistics of a data set, and the digest that identifies it."""

    users: int
    items: int
    interactions: int
    duplicates: int
    density: float
    items_per_user_min: int
    items_per_user_median: float
    items_per_user_mean: float
    items_per_user_max: int
    digest: str

    @classmethod
    def of(cls, data: Interactions) -> Summary:
        """Summarise interactions. If there are no users, everything per user is 0."""
        counts = data.counts if data.n_users else np.zeros(1, np.int64)
        return cls(
            users=data.n_users,
            items=data.n_items,
            interactions=len(data),
            duplicates=data.duplicates,
            density=len(data) / max(1, data.n_users * data.n_items),
            items_per_user_min=int(counts.min()),
            items_per_user_median=float(np.median(counts)),
            items_per_user_mean=float(counts.mean()),
            items_per_user_max=int(counts.max()),
            digest=data.digest,
        )
