"""Fitting: what a model's global parameters predict for a user of whom only some items are known.

The attacker fits the user's vector on these items: by least squares if the model scores by a dot product (with the
model's own regularisation if it learns so itself), else by a fixed number of gradient steps through the model.
"""

from __future__ import annotations

import numpy as np

from fedforget.evaluation.forgetting.scores import Flags
from fedforget.evaluation.forgetting.suspects import row_pointers
from fedforget.models import IALS, GlobalParameters, Recommender
from fedforget.models.least_squares import CONFIDENCE, REGULARISATION, fitted_users
from fedforget.models.parameters import Array

#: Gradient steps (Adam), their size, and the most known items of a user that they are taken on.
STEPS, RATE, MOST = 25, 0.1, 64
#: Unknown items for each known one.
NEGATIVES = 2
#: Users that are fitted at a time by gradient steps.
BLOCK = 32


def predicted(model: Recommender, public: GlobalParameters, known: Flags) -> Array:
    """The scores of all items for users fitted on their known items (users, items)."""
    if model.closed_form or model.dot_product:
        scores: Array = fitted_vectors(model, public.items, known) @ public.items.T
        return scores
    blocks = range(0, len(known), BLOCK)
    return np.concatenate([_by_gradient(model, public, known[start : start + BLOCK]) for start in blocks])


def fitted_vectors(model: Recommender, items: Array, known: Flags) -> Array:
    """The user vectors that best fit the known items of users, for a model that scores by a dot product."""
    table = np.ascontiguousarray(items, np.float32)
    alpha, reg = CONFIDENCE, REGULARISATION
    if isinstance(model, IALS):
        alpha, reg = model.alpha, model.user_reg(len(table))
    return fitted_users(table, table.T @ table, *row_pointers(known), alpha, reg)


def _by_gradient(model: Recommender, public: GlobalParameters, known: Flags) -> Array:
    """Fit private parameters by logistic loss on known items and on unknown ones, both spread over the catalogue."""
    from fedforget.runtime.tensors import torch

    index = np.stack([_training_items(row) for row in known])
    target = torch.from_numpy(np.take_along_axis(known, index, 1).astype(np.float32))
    places, users = torch.from_numpy(index), len(known)
    private = torch.zeros(users, model.private_layout.size, requires_grad=True)
    items = torch.from_numpy(public.items).expand(users, -1, -1)
    dense = torch.from_numpy(public.dense).expand(users, -1)
    own = torch.from_numpy(known.astype(np.float32))
    optimiser = torch.optim.Adam([private], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        scores = model.logits(model.local(private, items, dense, own), places)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, target, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.inference_mode():
        every = torch.arange(items.shape[1]).expand(users, -1)
        result: Array = model.logits(model.local(private, items, dense, own), every).numpy()
    return result


def _training_items(known: Flags) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Known items and unknown ones, ``MOST`` and ``NEGATIVES`` times as many: evenly spaced, repeated if too few."""
    parts = []
    for items, count in ((np.flatnonzero(known), MOST), (np.flatnonzero(~known), NEGATIVES * MOST)):
        parts.append(items[np.arange(count) * items.size // count] if items.size else np.zeros(count, np.int64))
    return np.concatenate(parts).astype(np.int64)
