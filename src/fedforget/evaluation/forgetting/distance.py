"""The distance of one model to another of the same users and items, such as that of a method to Retrain.

Models that score by a dot product do not change when user and item vectors are rotated together, so item tables are
rotated onto each other before they are compared; else Retrain would be far from itself with another seed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.evaluation.forgetting.scores import Floats, Ints
from fedforget.models.parameters import Array


def aligned(items: Array, reference: Array) -> Floats:
    """An item table, rotated so that it comes as close as possible to the reference (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(items.astype(np.float64).T @ reference.astype(np.float64))
    result: Floats = items @ (left @ right)
    return result


def item_distances(items: Array, reference: Array) -> Floats:
    """For each item, how far its vector is from that in the reference, relative to the typical length there."""
    apart = np.linalg.norm(aligned(items, reference) - reference, axis=1)
    typical = np.sqrt((reference.astype(np.float64) ** 2).sum(1).mean())
    result: Floats = apart / max(float(typical), 1e-12)
    return result


def table_distance(apart: Floats) -> float:
    """How far an item table is from the reference, relative to that one's length, from the distances of its items."""
    return float(np.sqrt(np.mean(np.square(apart, dtype=np.float64))))


def overlap(lists: NDArray[np.int64], others: NDArray[np.int64]) -> Floats:
    """For each user, the share of one list of items that is in the other; both have one row per user, -1 for none."""
    shared = ((lists[:, :, None] == others[:, None, :]) & (lists >= 0)[:, :, None]).any(2).sum(1)
    result: Floats = shared / np.maximum((lists >= 0).sum(1), 1)
    return result


def projection(apart: Floats, direction: Floats) -> float:
    """How far a difference of two item tables goes in a direction; 1 if it is the direction itself."""
    whole = float(np.square(direction).sum())
    return float((apart * direction).sum()) / whole if whole > 1e-12 else 0.0


def neighbours(own: NDArray[np.bool_], leavers: NDArray[np.bool_], count: int) -> Ints:
    """The ``count`` users (rows of ``own``) whose items are most like those of any leaver, by cosine."""
    unit = own / np.sqrt(np.maximum(own.sum(1, keepdims=True), 1))
    left = leavers / np.sqrt(np.maximum(leavers.sum(1, keepdims=True), 1))
    nearest = (unit @ left.T).max(1)
    return np.sort(np.argsort(-nearest, kind="stable")[:count])
