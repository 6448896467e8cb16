"""Signals: what global parameters tell about users, one number for each user and kind.

- ``fit``: a user vector is fitted on all of the user's items; their mean score above that of items of the same
  popularity which the user does not have, in standard deviations.
- ``half``: the same for each half of the items with a vector fitted on the other half: how well the model completes the
  user. ``likelihood`` is its geometric mean probability, for attacks that need a positive signal.
- ``cohesion``: the mean cosine of pairs of the user's items above that of items of the same popularity. Rare items
  count more, since fewer others have moved them.
- ``length``: the mean logarithm of the lengths of the user's item rows above that of items of the same popularity.
- ``step`` (of two snapshots of a trajectory): the mean cosine between how the user's items moved and the vector of the
  user, above that of items of the same popularity; in standard deviations over users.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedforget.evaluation.forgetting.fitting import fitted_vectors, predicted
from fedforget.evaluation.forgetting.scores import Flags, Floats
from fedforget.evaluation.forgetting.suspects import Suspects
from fedforget.models import GlobalParameters, Recommender
from fedforget.models.parameters import Array

#: Signals of a model, in this order.
KINDS = ("fit", "half", "cohesion", "length", "likelihood")
#: The share of steps with the largest signals; in so many rounds a user takes part.
LARGEST_STEPS = 0.1
#: With fewer users the signals of a step are left as they are, not in standard deviations over users.
LEAST_USERS = 8


def model_signals(model: Recommender, public: GlobalParameters, suspects: Suspects) -> Floats:
    """All signals of a model (users, ``KINDS``)."""
    fit = fit_signal(model, public, suspects)
    first, second = suspects.halves
    completed = [
        _above_popular(predicted(model, public, known), hidden, suspects)
        for known, hidden in ((first, second), (second, first))
    ]
    hidden = np.stack([_mean(table, flags) for table, flags in zip(completed, (second, first), strict=True)])
    chances = [-_mean(np.logaddexp(0, -table), flags) for table, flags in zip(completed, (second, first), strict=True)]
    likelihood = np.exp(np.nanmean(np.stack(chances), axis=0))
    columns = (fit, hidden.mean(0), cohesion(public.items, suspects), lengths(public.items, suspects), likelihood)
    return np.stack(columns, axis=1)


def fit_signal(model: Recommender, public: GlobalParameters, suspects: Suspects) -> Floats:
    """How well a user vector fits all items of the user."""
    return _mean(_above_popular(predicted(model, public, suspects.own), suspects.own, suspects), suspects.own)


def cohesion(rows: Array, suspects: Suspects) -> Floats:
    """How much the rows of a user's items point in one direction, more than those of items of the same popularity."""
    unit = _unit(rows)
    weights = suspects.own / np.sqrt(np.maximum(suspects.popularity, 1))
    squares = weights**2
    pairs = np.maximum(weights.sum(1) ** 2 - squares.sum(1), 1e-12)
    middle = _class_means(unit, suspects)
    found = ((weights @ unit) ** 2).sum(1) - squares @ (unit**2).sum(1)
    expected = ((weights @ middle) ** 2).sum(1) - squares @ (middle**2).sum(1)
    result: Floats = (found - expected) / pairs
    return result


def lengths(rows: Array, suspects: Suspects) -> Floats:
    """The mean logarithm of the lengths of a user's rows, above that of rows of the same popularity."""
    logs = np.log(np.linalg.norm(rows, axis=1) + 1e-9).astype(np.float64)
    relative = logs - _class_means(logs[:, None], suspects)[:, 0]
    return _mean(np.broadcast_to(relative, suspects.own.shape), suspects.own)


def step_signals(model: Recommender, tables: Sequence[tuple[Array, Array]], suspects: Suspects) -> Floats:
    """Mean, and mean of the largest, signal of the steps from one item table to the next (users, 2)."""
    if not tables:
        return np.zeros((len(suspects), 2))
    steps = np.sort(np.stack([_step(model, before, after, suspects) for before, after in tables]), axis=0)
    largest = max(1, round(LARGEST_STEPS * len(tables)))
    return np.stack([steps.mean(0), steps[-largest:].mean(0)], axis=1)


def _step(model: Recommender, before: Array, after: Array, suspects: Suspects) -> Floats:
    if model.closed_form or model.dot_product:
        moved = _unit(after - before)
        along = suspects.shares @ (moved - _class_means(moved, suspects))
        signal = (_unit(fitted_vectors(model, before, suspects.own)) * along).sum(1)
    else:
        signal = cohesion(after - before, suspects)
    few = len(suspects) < LEAST_USERS
    result: Floats = signal if few else (signal - signal.mean()) / max(float(signal.std()), 1e-12)
    return result


def _above_popular(scores: Array, chosen: Flags, suspects: Suspects) -> Floats:
    """Scores of chosen items above the mean of the user's other items of the same popularity, in their deviations."""
    free = ~suspects.own
    spread = np.array([row[others].std() for row, others in zip(scores, free, strict=True)])
    result: Floats = (scores - _expected(scores, free, suspects)) / np.maximum(spread, 1e-9)[:, None]
    return np.where(chosen, result, 0.0)


def _expected(scores: Array, where: Flags, suspects: Suspects) -> Floats:
    """The mean score, over the items ``where``, of the popularity class of each item."""
    count = where @ suspects.members
    overall = (scores * where).sum(1) / np.maximum(where.sum(1), 1)
    mean = np.where(count > 0, (scores * where) @ suspects.members / np.maximum(count, 1), overall[:, None])
    result: Floats = mean @ suspects.members.T
    return result


def _class_means(values: Array | Floats, suspects: Suspects) -> Floats:
    """For each item, the mean of the rows of its popularity class."""
    classes = suspects.members.T @ values / suspects.members.sum(0)[:, None]
    result: Floats = suspects.members @ classes
    return result


def _mean(table: Array | Floats, chosen: Flags) -> Floats:
    """The mean over the chosen items of each user; NaN if there are none."""
    count = chosen.sum(1)
    total = np.where(chosen, table, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _unit(rows: Array) -> Array:
    result: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return result
