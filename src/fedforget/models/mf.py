"""MF: matrix factorisation, the smallest recommender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedforget.models.recommender import LocalModel, Recommender

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MF(Recommender):
    """The score of an item is the dot product of its vector with the user's."""

    init_std: float = 0.01

    name: ClassVar[str] = "mf"
    dot_product: ClassVar[bool] = True

    def logits(self, local: LocalModel, index: Tensor) -> Tensor:
        return (local.rows(index) @ local.user.unsqueeze(-1)).squeeze(-1)
