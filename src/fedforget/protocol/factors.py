"""Factors: how much the server scaled the updates of a replayed round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.models.parameters import Array


@dataclass(frozen=True)
class Factors:
    """The factor of each item row and of each other tensor."""

    items: Array
    dense: Array

    @classmethod
    def zero(cls, n_items: int, n_tensors: int) -> Factors:
        """The factors of updates that were not used."""
        return cls(np.zeros(n_items, np.float32), np.zeros(n_tensors, np.float32))
