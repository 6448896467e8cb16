"""Fed-LightGCN: one propagation layer on the ego graph of a device's user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedforget.models.least_squares import sums_of
from fedforget.models.parameters import Array
from fedforget.models.recommender import LocalModel, Recommender

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LightGCN(Recommender):
    """LightGCN on the graph of one user and its items.

    In this graph |N_u| is the number of the user's items and |N_v| is 1, so both directions of the layer are scaled by
    1 / sqrt(|N_u|). The final vectors are the mean of layers 0 and 1, and the score is their dot product.
    """

    init_std: float = 0.01

    name: ClassVar[str] = "lightgcn"
    dot_product: ClassVar[bool] = True

    def embeddings_for(
        self, vectors: Array, items: Array, own_ptr: NDArray[np.int64], own_items: NDArray[np.int32]
    ) -> Array:
        """Undo the propagation: 2 u* minus the scaled sum of the own items' vectors."""
        scales = np.sqrt(np.maximum(np.diff(own_ptr), 1)).astype(np.float32)
        embeddings: Array = 2 * vectors - sums_of(own_ptr, own_items, items) / scales[:, None]
        return embeddings

    def user_vectors(
        self, private: Array, items: Array, gram: Array, own_ptr: NDArray[np.int64], own_items: NDArray[np.int32]
    ) -> Array:
        """Half the propagated user vector, since the final vector of other items is half their own."""
        scales = np.sqrt(np.maximum(np.diff(own_ptr), 1)).astype(np.float32)
        vectors: Array = np.float32(0.25) * (
            private[:, : self.dim] + sums_of(own_ptr, own_items, items) / scales[:, None]
        )
        return vectors

    def logits(self, local: LocalModel, index: Tensor) -> Tensor:
        scale = local.degree.clamp(min=1).rsqrt().unsqueeze(-1)
        gathered = (local.own.unsqueeze(1) @ local.items).squeeze(1)
        user = (local.user + scale * gathered) / 2
        own = local.own.gather(1, index).unsqueeze(-1)
        items = (local.rows(index) + own * (scale * local.user).unsqueeze(1)) / 2
        return (items @ user.unsqueeze(-1)).squeeze(-1)
