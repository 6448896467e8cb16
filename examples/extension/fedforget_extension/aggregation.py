"""An aggregation rule: the mean of updates whose length is limited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import fedforget as ff


@dataclass(frozen=True)
class ClippedMean(ff.AggregationRule):
    """The mean over the cohort; an update longer than ``norm`` is scaled down to that length."""

    norm: float = 1.0

    name: ClassVar[str] = "clipped"

    def weights(self, updates: ff.Updates) -> NDArray[np.float64]:
        """The weight of each client."""
        squares = np.concatenate([[0.0], np.cumsum(np.square(updates.rows, dtype=np.float64).sum(axis=1))])
        rows = squares[updates.ptr[1:]] - squares[updates.ptr[:-1]]
        lengths = np.sqrt(rows + np.square(updates.dense, dtype=np.float64).sum(axis=1))
        return np.minimum(1.0, self.norm / np.maximum(lengths, 1e-12)) / max(len(updates), 1)
