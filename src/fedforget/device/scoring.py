"""Scoring: the scores of all items for a device's users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.models import GlobalParameters
from fedforget.models.least_squares import CONFIDENCE, REGULARISATION, fitted_users
from fedforget.models.parameters import Array
from fedforget.protocol.device_config import DeviceConfig

Keys = NDArray[np.uint64]
#: Scores all items for the user at a position.
PlaceScorer = Callable[[int], Array]
#: Scores all items for the users at some positions, one row each. Scores of a user's own items have no meaning.
RowScorer = Callable[[NDArray[np.int64]], Array]
#: The user vectors of the users at some positions.
UserVectors = Callable[[NDArray[np.int64]], Array]


def scorer(
    config: DeviceConfig, public: GlobalParameters, interactions: Interactions, private: Array, draw_keys: Keys
) -> PlaceScorer:
    """Scores users with these interactions, private parameters and keys of their random draws.

    If devices fit user vectors before training, the vector of a user who was never trained is fitted here.
    """
    model = config.model
    score = model.scorer(public)
    if not config.training.refit:
        return lambda place: score(private[place], interactions.items_of(place))
    fit = _fitting(config, public)

    def score_place(place: int) -> Array:
        own, row = interactions.items_of(place), private[place]
        if np.array_equal(row, model.init_private(draw_keys[place : place + 1], config.seed)[0]):
            row = row.copy()
            row[: model.dim] = fit(np.array([0, own.size]), own)[0]
        return score(row, own)

    return score_place


def row_scorer(
    config: DeviceConfig, public: GlobalParameters, interactions: Interactions, private: Array, draw_keys: Keys
) -> RowScorer:
    """Scores many users: by one matrix product if the model scores by a dot product, else one after the other."""
    if (vectors := user_vectors(config, public, interactions, private, draw_keys)) is not None:
        items = np.ascontiguousarray(public.items.T)
        return lambda places: vectors(places) @ items
    score = scorer(config, public, interactions, private, draw_keys)
    return lambda places: np.stack([score(int(place)) for place in places])


def user_vectors(
    config: DeviceConfig, public: GlobalParameters, interactions: Interactions, private: Array, draw_keys: Keys
) -> UserVectors | None:
    """The vectors of users in a model that scores by a dot product (``Recommender.user_vectors``), else None."""
    model = config.model
    if not (model.closed_form or model.dot_product):
        return None
    items = np.ascontiguousarray(public.items)
    gram, ready = items.T @ items, _private_rows(config, public, interactions, private, draw_keys)
    return lambda places: model.user_vectors(ready(places), items, gram, *interactions.rows(places))


def _private_rows(
    config: DeviceConfig, public: GlobalParameters, interactions: Interactions, private: Array, draw_keys: Keys
) -> UserVectors:
    """The private parameters of users at some positions; fitted for users who were never trained, as in ``scorer``."""
    model = config.model
    if not config.training.refit:
        return lambda places: private[places]
    fit = _fitting(config, public)

    def rows(places: NDArray[np.int64]) -> Array:
        found: Array = private[places]
        initial = model.init_private(draw_keys[places], config.seed)
        new = np.flatnonzero((found == initial).all(axis=1))
        if new.size:
            found[new, : model.dim] = fit(*interactions.rows(places[new]))
        return found

    return rows


def _fitting(config: DeviceConfig, public: GlobalParameters) -> Callable[[NDArray[np.int64], NDArray[np.int32]], Array]:
    """Fits the embeddings of users with given items, as devices do before they train."""
    items = np.ascontiguousarray(public.items)
    gram = items.T @ items

    def fit(ptr: NDArray[np.int64], own: NDArray[np.int32]) -> Array:
        vectors = fitted_users(items, gram, ptr, own, CONFIDENCE, REGULARISATION)
        return config.model.embeddings_for(vectors, items, ptr, own)

    return fit
