"""Scoring: from a device's private parameters and the public ones to the scores of all items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedforget.data import Interactions
from fedforget.device.training import LocalTraining
from fedforget.models import Public, Recommender
from fedforget.models.least_squares import CONFIDENCE, REGULARISATION, confidence, fitted_user
from fedforget.models.parameters import Array

#: The scores of all items for the user at a place.
PlaceScorer = Callable[[int], Array]


def scorer(
    model: Recommender, training: LocalTraining, public: Public, interactions: Interactions, private: Array, seed: int
) -> PlaceScorer:
    """The scores of users with these interactions and private parameters.

    Where user vectors are fitted before training anyway, one that was never trained is fitted here.
    """
    score = model.scorer(public)
    if not training.refit:
        return lambda place: score(private[place], interactions.items_of(place))
    items = np.ascontiguousarray(public.items)
    gram = items.T @ items

    def score_place(place: int) -> Array:
        own, row = interactions.items_of(place), private[place]
        if np.array_equal(row, model.init_private(interactions.user_keys[place : place + 1], seed)[0]):
            row = row.copy()
            weight = confidence(CONFIDENCE, len(items), own.size)
            vector = fitted_user(items, gram, own, weight, REGULARISATION)
            row[: model.dim] = model.embeddings_for(vector[None], items, np.array([0, own.size]), own)[0]
        return score(row, own)

    return score_place
