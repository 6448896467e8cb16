"""A model of your own in one small class: MF with a bias for each item.

Run it:  python examples/own_model.py

A model says how it scores with a leading client axis: ``index`` is (clients, batch), and so is what ``logits``
returns. That is all; sampling, local training, aggregation, resuming and evaluation come with the federation, and the
stacked trainer trains many clients in one backward pass. A subclass of a built-in model never gets that model's
compiled kernel, so what you write is what is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

import fedforget as ff


@dataclass(frozen=True)
class BiasedMF(ff.Recommender):
    """u · v plus a bias: the last coordinate of each item vector. ``strength`` is a setting like any other."""

    strength: float = 1.0
    name: ClassVar[str] = "biased-mf"

    def logits(self, local: ff.LocalModel, index: Tensor) -> Tensor:
        """Score the items at these positions."""
        items = local.rows(index)
        taste = (items[..., :-1] @ local.user[..., :-1].unsqueeze(-1)).squeeze(-1)
        return taste + self.strength * items[..., -1]


def main(users: int = 300, rounds: int = 60) -> ff.Evaluation:
    train, test = ff.synthetic(users=users, items=200, mean_items=25).split()
    fed = ff.Federation(train, BiasedMF(dim=16), training=ff.LocalTraining(epochs=10, lr=0.01))
    before = fed.evaluate(test)
    after = fed.fit(rounds=rounds).evaluate(test)
    print(f"before training\n{before}\nafter {rounds} rounds\n{after}")
    return after


if __name__ == "__main__":
    main()
