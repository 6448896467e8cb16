"""Calibration at the server (the paper's): the length of the old aggregate, the direction of the fresh one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.protocol.factors import Factors
from fedforget.server.aggregation import Step

#: What has a length of its own: each item's row and each other tensor, or the whole item table too (FedEraser's way).
GRANULARITIES = ["row", "tensor"]


def calibrate(
    old: Step, fresh: Step, layout: Layout, granularity: str = "row", parts: str = "all"
) -> tuple[Step, Factors]:
    """‖old‖ · fresh / ‖fresh‖ for every part, and the factors ‖old‖ / ‖fresh‖; 0 where nothing moved.

    With ``parts="rows"`` that is done to the item table only; the factors of other tensors are 1.
    """
    by_row = granularity == "row"
    items = _factors(_lengths(old.items, by_row), _lengths(fresh.items, by_row))
    places = list(layout.places.values())
    dense = np.ones(len(places), np.float32)
    if parts == "all":
        dense = _factors(*(_tensor_lengths(step, places) for step in (old, fresh)))
    sizes = [place.stop - place.start for place in places]
    step = Step(fresh.items * items[:, None], fresh.dense * np.repeat(dense, sizes))
    return step, Factors(np.broadcast_to(items, fresh.items.shape[:1]), dense)


def _lengths(table: Array, by_row: bool) -> Array:
    """The length of every row, or of the whole table, in as many numbers as it has."""
    squares = np.einsum("ij,ij->i", table, table, dtype=np.float64)
    lengths: Array = np.sqrt(squares if by_row else squares.sum(keepdims=True)).astype(np.float32)
    return lengths


def _tensor_lengths(step: Step, places: Sequence[slice]) -> Array:
    return np.array([np.linalg.norm(step.dense[place]) for place in places], np.float32)


def _factors(old: Array, fresh: Array) -> Array:
    factors = np.zeros_like(fresh)
    np.divide(old, fresh, out=factors, where=fresh > 0)
    return factors
