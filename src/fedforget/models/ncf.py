"""Fed-NCF: a multilayer perceptron on the pair (user vector, item vector)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedforget.errors import ConfigError
from fedforget.models.parameters import Array
from fedforget.models.recommender import LocalModel, Recommender
from fedforget.runtime import randomness

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NCF(Recommender):
    """Neural collaborative filtering: [u, v] → 256 → 128 → 64 with ReLU, then h: 64 → 1.

    Weights have the shape (inputs, outputs). The first layer is stored as two halves, because the user's half of
    [u, v]·W1 is the same for a client's whole batch and is computed once.
    """

    negatives: int = 4
    hidden: tuple[int, int, int] = (256, 128, 64)

    name: ClassVar[str] = "ncf"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if np.shape(self.hidden) != (3,) or min(self.hidden) < 1:
            raise ConfigError(f"hidden is {self.hidden}.", "Give three layer sizes, such as (256, 128, 64).")

    def dense_shapes(self) -> dict[str, tuple[int, ...]]:
        """The perceptron, in the order that the compiled kernel expects."""
        first, second, third = self.hidden
        return {
            "mlp.0.item": (self.dim, first),
            "mlp.0.user": (self.dim, first),
            "mlp.0.bias": (first,),
            "mlp.1.weight": (first, second),
            "mlp.1.bias": (second,),
            "mlp.2.weight": (second, third),
            "mlp.2.bias": (third,),
            "out.weight": (third,),
            "out.bias": (1,),
        }

    def init_dense(self, name: str, out: Array, state: randomness.Stream) -> None:
        """The default of ``torch.nn.Linear``: weights and biases are uniform within ±1 / sqrt(inputs)."""
        first, second, third = self.hidden
        layer = name.rsplit(".", 1)[0]
        inputs = {"mlp.0": 2 * self.dim, "mlp.1": first, "mlp.2": second, "out": third}[layer]
        bound = 1 / math.sqrt(inputs)
        randomness.fill_uniform(state, out.reshape(-1), -bound, bound)

    def logits(self, local: LocalModel, index: Tensor) -> Tensor:
        from fedforget.runtime.tensors import torch

        dense = local.dense
        of_user = torch.baddbmm(dense["mlp.0.bias"].unsqueeze(1), local.user.unsqueeze(1), dense["mlp.0.user"])
        x = torch.relu(of_user + local.rows(index) @ dense["mlp.0.item"])
        x = torch.relu(torch.baddbmm(dense["mlp.1.bias"].unsqueeze(1), x, dense["mlp.1.weight"]))
        x = torch.relu(torch.baddbmm(dense["mlp.2.bias"].unsqueeze(1), x, dense["mlp.2.weight"]))
        return (x @ dense["out.weight"].unsqueeze(-1)).squeeze(-1) + dense["out.bias"]
