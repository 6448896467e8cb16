"""Scoring: the scores of all items for a device's users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedforget.data import Interactions
from fedforget.models import GlobalParameters
from fedforget.models.least_squares import CONFIDENCE, REGULARISATION, confidence, fitted_user
from fedforget.models.parameters import Array
from fedforget.protocol.device_config import DeviceConfig

#: Scores all items for the user at a position.
PlaceScorer = Callable[[int], Array]


def scorer(config: DeviceConfig, public: GlobalParameters, interactions: Interactions, private: Array) -> PlaceScorer:
    """Scores users with these interactions and private parameters.

    If devices fit user vectors before training (``refit``), the vector of a user who was never trained is fitted here.
    """
    model = config.model
    score = model.scorer(public)
    if not config.training.refit:
        return lambda place: score(private[place], interactions.items_of(place))
    items = np.ascontiguousarray(public.items)
    gram = items.T @ items

    def score_place(place: int) -> Array:
        own, row = interactions.items_of(place), private[place]
        if np.array_equal(row, model.init_private(interactions.user_keys[place : place + 1], config.seed)[0]):
            row = row.copy()
            weight = confidence(CONFIDENCE, len(items), own.size)
            vector = fitted_user(items, gram, own, weight, REGULARISATION)
            row[: model.dim] = model.embeddings_for(vector[None], items, np.array([0, own.size]), own)[0]
        return score(row, own)

    return score_place
