"""The training objective in torch, for the trainers that use autograd."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fedforget.models import LocalModel, Recommender


def objective(model: Recommender, local: LocalModel, left: Tensor, right: Tensor) -> Tensor:
    """The loss of each sample, (C, B): cross-entropy with "is an own item", or BPR on pairs."""
    if model.loss == "bpr":
        return functional.softplus(model.logits(local, right) - model.logits(local, left))
    logits = model.logits(local, left)
    return functional.binary_cross_entropy_with_logits(logits, local.own.gather(1, left), reduction="none")
