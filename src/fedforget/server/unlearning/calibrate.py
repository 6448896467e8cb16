"""Calibration at the server (the paper's): an aggregate gets the length of the old one, part by part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.protocol.factors import Factors
from fedforget.server.aggregation import Step

#: Parts whose lengths are set: each item row, or the item table as a whole (FedEraser); other tensors as a whole.
GRANULARITIES = ["row", "tensor"]


def calibrate(
    old: Step, fresh: Step, layout: Layout, granularity: str = "row", parts: str = "all"
) -> tuple[Step, Factors]:
    """‖old‖ · fresh / ‖fresh‖ for every part, and the factors ‖old‖ / ‖fresh‖ (0 if ‖fresh‖ is 0).

    With ``parts="rows"`` only the item table is scaled; the factors of other tensors are 1.
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
    """The length of every row, or of the whole table."""
    squares = np.einsum("ij,ij->i", table, table, dtype=np.float64)
    lengths: Array = np.sqrt(squares if by_row else squares.sum(keepdims=True)).astype(np.float32)
    return lengths


def _tensor_lengths(step: Step, places: Sequence[slice]) -> Array:
    return np.array([np.linalg.norm(step.dense[place]) for place in places], np.float32)


def _factors(old: Array, fresh: Array) -> Array:
    factors = np.zeros_like(fresh)
    np.divide(old, fresh, out=factors, where=fresh > 0)
    return factors
