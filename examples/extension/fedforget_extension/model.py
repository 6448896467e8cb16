"""A recommender: items are scored by their distance to the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import fedforget as ff

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Metric(ff.Recommender):
    """The score of an item is ``margin`` minus its squared distance to the user."""

    margin: float = 1.0

    name: ClassVar[str] = "metric"

    def logits(self, local: ff.LocalModel, index: Tensor) -> Tensor:
        """Score the items at these positions."""
        return self.margin - (local.rows(index) - local.user.unsqueeze(1)).square().sum(-1)
