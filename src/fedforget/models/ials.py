"""Fed-iALS: weighted implicit matrix factorisation with a closed-form user vector and gradients for the item table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedforget.errors import ConfigError
from fedforget.models.least_squares import confidence, fitted_user, fitted_users
from fedforget.models.parameters import Array, GlobalParameters
from fedforget.models.recommender import LocalModel, Recommender, Scorer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class IALS(Recommender):
    """Implicit alternating least squares (Hu et al. 2008), federated by gradients (FCF, Ammad-ud-din et al. 2019).

    The score of an item is p·v, where the user vector p is a function of the item table and the user's own items
    (``models.least_squares``): a device keeps no private parameters. It sends p pᵀ and, for each own item, the row
    ((1 + α) − α p·v) p; from the means of both the server computes the gradient of the squared error over *all* items.

    The weight of each of a user's n items out of N is ``alpha`` · √(N / n). ``reg`` is the strength of L2
    regularisation relative to the largest singular value of random interactions with the same numbers of users and
    items, which grows as √users + √items, so one value fits small and large federations.
    """

    negatives: int = 0
    loss: str = "squared"
    alpha: float = 1.0
    reg: float = 0.6

    name: ClassVar[str] = "ials"
    closed_form: ClassVar[bool] = True
    clip: ClassVar[float] = 100.0
    losses: ClassVar[Sequence[str]] = ("squared",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("alpha", self.alpha), ("reg", self.reg)):
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} is {value}.", "Give a positive number.")

    def private_shapes(self) -> dict[str, tuple[int, ...]]:
        """None: the user vector is computed when it is needed."""
        return {}

    def user_reg(self, n_items: int) -> float:
        """The regularisation of user vectors."""
        return 2 * self.reg * math.sqrt(n_items)

    def item_reg(self, n_items: int, users: int) -> float:
        """The regularisation of item vectors: its product with that of users is the square of reg (√users + √items)."""
        return self.reg * (math.sqrt(users) + math.sqrt(n_items)) ** 2 / (2 * math.sqrt(n_items))

    def update_shapes(self) -> dict[str, tuple[int, ...]]:
        """The lower half of p pᵀ, row by row."""
        return {"gram": (self.dim * (self.dim + 1) // 2,)}

    def direction(self, public: GlobalParameters, items: Array, dense: Array, users: int) -> tuple[Array, Array]:
        """Minus half the gradient of the mean loss per user: mean rows − V (mean p pᵀ + item_reg / users · I)."""
        gram = np.zeros((self.dim, self.dim), np.float32)
        gram[np.tril_indices(self.dim)] = dense
        gram += np.tril(gram, -1).T
        gram[np.diag_indices(self.dim)] += np.float32(self.item_reg(len(items), users) / max(users, 1))
        return items - public.items @ gram, np.empty(0, np.float32)

    def scorer(self, public: GlobalParameters) -> Scorer:
        """Score with user vectors that compiled code fits."""
        items = np.ascontiguousarray(public.items)
        gram, reg = items.T @ items, self.user_reg(len(items))

        def score(_: Array, own_items: NDArray[np.int32]) -> Array:
            weight = confidence(self.alpha, len(items), own_items.size)
            scores: Array = items @ fitted_user(items, gram, own_items, weight, reg)
            return scores

        return score

    def user_vectors(
        self, private: Array, items: Array, gram: Array, own_ptr: NDArray[np.int64], own_items: NDArray[np.int32]
    ) -> Array:
        return fitted_users(items, gram, own_ptr, own_items, self.alpha, self.user_reg(len(items)))

    def score(self, private: Array, public: GlobalParameters, own_items: NDArray[np.int32]) -> Array:
        return self.scorer(public)(private, own_items)

    def user(self, local: LocalModel) -> Tensor:
        """The user vectors (C, dim) of clients whose tables contain all items, as the compiled code computes them."""
        from fedforget.runtime.tensors import torch

        n_items = local.items.shape[1]
        weights = self.alpha * (n_items / local.degree.clamp(min=1)).sqrt().unsqueeze(-1)
        confident = 1 + weights * local.own
        matrix = local.items.transpose(1, 2) @ (confident.unsqueeze(-1) * local.items)
        matrix = matrix + self.user_reg(n_items) * torch.eye(self.dim)
        target = (local.items.transpose(1, 2) @ (confident * local.own).unsqueeze(-1)).squeeze(-1)
        solved: Tensor = torch.linalg.solve(matrix, target)
        return solved

    def logits(self, local: LocalModel, index: Tensor) -> Tensor:
        """p·v; the clients' tables must contain all items."""
        return (local.rows(index) @ self.user(local).unsqueeze(-1)).squeeze(-1)
