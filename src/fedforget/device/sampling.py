"""Negative samplers: which items a device trains against.

Once per client and round, before local training, a candidate pool of items that the user never touched is formed
and N · β · positives are drawn from it, without replacement (with, where the pool is too small). Pools by name:

- ``random``: every item the user did not touch;
- ``user``: the R percent of those nearest (Euclidean) to the user embedding;
- ``item``: the R percent nearest to the mean embedding of the user's own items;
- ``mixed``: the union of the last two, the paper's user-item mixed semi-hard sampler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.compiled import exact, fast
from fedforget.device.kernels.matrix import aligned, padded_width, product, transpose
from fedforget.errors import ConfigError, one_of
from fedforget.models.parameters import Array

Items = NDArray[np.int32]
Mask = NDArray[np.uint8]

KINDS = ["random", "user", "item", "mixed"]
#: A kind as two bits: whether the pool looks around the user, and whether it looks around the user's items.
FLAGS = {"random": 0b00, "user": 0b01, "item": 0b10, "mixed": 0b11}
#: Bins in which distances are counted to find the nearest.
BINS = 1024


@dataclass(frozen=True)
class Sampler:
    """A negative sampler's settings: its kind, R (percent of the untouched items) and β in (0, 1]."""

    kind: str = "mixed"
    R: float = 75.0
    beta: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise one_of("sampler", self.kind, KINDS)
        if not 0 < self.R <= 100:
            raise ConfigError(f"R is {self.R}.", "R is a percentage of the untouched items: above 0, at most 100.")
        if not 0 < self.beta <= 1:
            raise ConfigError(f"beta is {self.beta}.", "β is a share of the negatives: above 0, at most 1.")

    def count(self, negatives: int, positives: int) -> int:
        """How many negatives a user with so many positives trains on: N · β · positives, at least one."""
        return max(1, math.floor(negatives * self.beta * positives + 0.5))


@exact
def survey(items: Array) -> tuple[Array, Array]:
    """The item table with one coordinate a row, and every item's squared length: made once a round for all clients.

    With them, the distances of all items to a point, up to a constant, are one fast product: |v|² - 2 v · p.
    """
    n_items, dim = items.shape
    copy = aligned(padded_width(n_items), padded_width(dim))
    copy[:n_items, :dim] = items
    turned = aligned(padded_width(dim), padded_width(n_items))
    transpose(copy, turned, copy.shape[0], copy.shape[1])
    lengths = np.zeros(n_items, np.float32)
    for j in range(dim):
        for i in range(n_items):
            lengths[i] += turned[j, i] * turned[j, i]
    return turned, lengths


@fast
def distances_from(products: Array, lengths: Array, out: Array) -> None:
    """The squared distances, up to a constant, from the products of the items with a point."""
    for i in range(lengths.size):
        out[i] = lengths[i] - np.float32(2) * products[i]


@fast
def centroid(items: Array, own: Items, out: Array) -> None:
    """The mean of some rows of the item table."""
    out[:] = 0
    for i in own:
        for j in range(out.size):
            out[j] += items[i, j]
    for j in range(out.size):
        out[j] /= np.float32(own.size)


@exact
def kth_smallest(values: Array, k: int) -> np.float32:
    """The k-th smallest value, counting from 0.

    Values are counted in equal bins; only those of the bin where the k-th lies are looked at again. Unlike a
    partition of all values, that needs no branch that the processor cannot foresee.
    """
    low, high = values.min(), values.max()
    if not low < high:
        return np.float32(low)
    if not np.isfinite(high - low):
        return np.float32(np.sort(values)[k])
    scale = (np.float64(BINS) - 1.0) / (np.float64(high) - np.float64(low))
    bins = np.empty(values.size, np.int32)
    counts = np.zeros(BINS, np.int64)
    for i in range(values.size):
        bins[i] = int((np.float64(values[i]) - np.float64(low)) * scale)
        counts[bins[i]] += 1
    at = 0
    while k >= counts[at]:
        k -= counts[at]
        at += 1
    near = np.empty(counts[at], np.float32)
    n_near = 0
    for i in range(values.size):
        if bins[i] == at:
            near[n_near] = values[i]
            n_near += 1
    return np.float32(np.sort(near)[k])


@exact
def mark_nearest(distances: Array, own: Mask, n: int, marked: Mask) -> None:
    """Mark the n untouched items with the smallest distances; equal distances go to the lower index."""
    free = np.empty(distances.size, np.float32)
    n_free = 0
    for i in range(distances.size):
        free[n_free] = distances[i]
        n_free += 1 - own[i]
    limit = kth_smallest(free[:n_free], n - 1)
    left = n
    for i in range(distances.size):
        nearer = (1 - own[i]) & (distances[i] < limit)
        marked[i] |= nearer
        left -= nearer
    for i in range(distances.size):
        if left == 0:
            break
        if own[i] == 0 and distances[i] == limit:
            marked[i] = 1
            left -= 1


@exact
def mark_near(
    flags: int, n_near: int, items: Array, turned: Array, lengths: Array, user: Array, own_items: Items, own: Mask,
    marked: Mask,
) -> None:  # fmt: skip
    """Mark the untouched items nearest to the user, to the centroid of its items, or to either."""
    dim = items.shape[1]
    points = np.empty((2, dim), np.float32)
    points[0] = user[:dim]
    centroid(items, own_items, points[1])
    products = aligned(2, turned.shape[1])
    product(points, False, turned, products, 2, turned.shape[1], dim)
    distances = np.empty(lengths.size, np.float32)
    for point in range(2):
        if flags & (1 << point):
            distances_from(products[point], lengths, distances)
            mark_nearest(distances, own, n_near, marked)


@exact
def candidate_pool(
    flags: int, R: float, items: Array, turned: Array, lengths: Array, user: Array, own_items: Items, own: Mask
) -> Items:
    """The items that negatives may be drawn from, in order of their index.

    ``turned`` and ``lengths`` come from ``survey(items)``; ``own`` is a scratch mask over all items, zero on entry and
    on return.
    """
    n_items = items.shape[0]
    for i in own_items:
        own[i] = 1
    n_free = n_items - own_items.size
    marked = np.zeros(n_items, np.uint8)
    if flags == 0:
        for i in range(n_items):
            marked[i] = 1 - own[i]
    elif n_free > 0:
        n_near = int(np.ceil(R * n_free / 100.0))
        mark_near(flags, n_near, items, turned, lengths, user, own_items, own, marked)
    for i in own_items:
        own[i] = 0
    pool = np.empty(int(marked.sum()), np.int32)
    place = 0
    for i in range(n_items):
        if marked[i]:
            pool[place] = i
            place += 1
    return pool
