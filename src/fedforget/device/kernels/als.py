"""The kernel of Fed-iALS: fit a user's vector, and what it contributes to the gradient of the item table."""

from __future__ import annotations

import numpy as np

from fedforget.models.least_squares import confidence, fit_user
from fedforget.runtime.compiled import fast
from fedforget.runtime.workers import next_place


@fast
def contributions(  # type: ignore[no-untyped-def]
    order, counter, ptr, own_items, items, gram, alpha, reg, rows, outer, losses
) -> None:
    """For each client, the row of each own item, the lower half of p pᵀ, and the mean squared error on own items."""
    dim = items.shape[1]
    work, user = np.empty((dim, dim), np.float32), np.empty(dim, np.float32)
    c = next_place(order, counter)
    while c >= 0:
        own = own_items[ptr[c] : ptr[c + 1]]
        weight = confidence(alpha, items.shape[0], own.size)
        fit_user(items, gram, own, weight, reg, work, user)
        error = np.float32(0)
        for place in range(own.size):
            row = items[own[place]]
            score = np.float32(0)
            for j in range(dim):
                score += row[j] * user[j]
            error += (np.float32(1) - score) * (np.float32(1) - score)
            factor = np.float32(1 + weight) - np.float32(weight) * score
            target = rows[ptr[c] + place]
            for j in range(dim):
                target[j] = factor * user[j]
        losses[c] = error / max(own.size, 1)
        place = 0
        for a in range(dim):
            for b in range(a + 1):
                outer[c, place] = user[a] * user[b]
                place += 1
        c = next_place(order, counter)
