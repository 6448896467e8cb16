"""Calibration at the server (the paper's): the length of the old aggregate, the direction of the fresh one."""

from __future__ import annotations

import numpy as np

from fedforget.models import Layout
from fedforget.models.parameters import Array
from fedforget.replay import Factors
from fedforget.server.aggregate import Step

#: What has a length of its own: each item's row and each other tensor, or the whole item table too (FedEraser's way).
GRANULARITIES = ["row", "tensor"]


def calibrate(old: Step, fresh: Step, layout: Layout, granularity: str = "row") -> tuple[Step, Factors]:
    """‖old‖ · fresh / ‖fresh‖ for every part, and the factors ‖old‖ / ‖fresh‖; 0 where nothing moved."""
    by_row = granularity == "row"
    items = _factors(_lengths(old.items, by_row), _lengths(fresh.items, by_row))
    parts = list(layout.places.values())
    dense = _factors(
        np.array([np.linalg.norm(old.dense[part]) for part in parts], np.float32),
        np.array([np.linalg.norm(fresh.dense[part]) for part in parts], np.float32),
    )
    sizes = [part.stop - part.start for part in parts]
    step = Step(fresh.items * items[:, None], fresh.dense * np.repeat(dense, sizes))
    return step, Factors(np.broadcast_to(items, fresh.items.shape[:1]), dense)


def _lengths(table: Array, by_row: bool) -> Array:
    """The length of every row, or of the whole table, in as many numbers as it has."""
    squares = np.einsum("ij,ij->i", table, table, dtype=np.float64)
    lengths: Array = np.sqrt(squares if by_row else squares.sum(keepdims=True)).astype(np.float32)
    return lengths


def _factors(old: Array, fresh: Array) -> Array:
    factors = np.zeros_like(fresh)
    np.divide(old, fresh, out=factors, where=fresh > 0)
    return factors
