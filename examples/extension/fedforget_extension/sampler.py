"""A negative sampler: negatives are items that the model already scores high for the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import fedforget as ff


@dataclass(frozen=True)
class HardSampler(ff.Sampler):
    """Negatives from the R percent of items with the largest dot product with the user embedding."""

    R: float = 20.0

    name: ClassVar[str] = "hard"

    def pool(self, items: NDArray[np.float32], user: NDArray[np.float32], own: NDArray[np.int32]) -> NDArray[Any]:
        """Indices of the candidate items."""
        scores = items @ user[: items.shape[1]]
        scores[own] = -np.inf
        count = max(1, round(self.R / 100 * (len(items) - len(own))))
        return np.argsort(-scores, kind="stable")[:count]
