"""Candidate pools of the built-in negative samplers, in compiled code (see ``protocol.sampler``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.kernels.matrix import aligned, padded_width, product, transpose
from fedforget.device.kernels.vectors import LANES
from fedforget.models.parameters import Array
from fedforget.protocol.sampler import Sampler
from fedforget.runtime.compiled import exact, fast

Items = NDArray[np.int32]
Mask = NDArray[np.uint8]
Pointers = NDArray[np.int64]

#: The rank of items that are never among the nearest; larger than that of any distance. See ``rank``.
FARTHEST = 2**31 - 1


@exact
def survey(items: Array) -> tuple[Array, Array]:
    """The transposed item table, and every item's squared length: computed once per round for all clients.

    With them, the distances of all items to a point, up to a constant, are one fast product: |v|² - 2 v · p. The table
    must be contiguous.
    """
    n_items, dim = items.shape
    turned = aligned(padded_width(dim), padded_width(n_items))
    whole_items, whole_dim = n_items // LANES * LANES, dim // LANES * LANES
    transpose(items, turned, whole_items, whole_dim)
    for i in range(n_items):
        for j in range(whole_dim if i < whole_items else 0, dim):
            turned[j, i] = items[i, j]
    lengths = np.zeros(n_items, np.float32)
    for j in range(dim):
        for i in range(n_items):
            lengths[i] += turned[j, i] * turned[j, i]
    return turned, lengths


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
def nearest_count(R: float, n_free: int) -> int:
    """The number of items in the nearest R percent of the items that are not own, rounded up."""
    return int(np.ceil(R * n_free / 100.0))


@exact
def distance_scratch(n_clients: int, items: Array) -> tuple[Array, Array]:
    """Memory for ``measure`` with this many clients: for their points, and for the distances of all items to them."""
    n_items, dim = items.shape
    return np.empty((2 * n_clients, dim), np.float32), aligned(2 * n_clients, padded_width(n_items))


@exact
def measure(
    flags: int,
    items: Array,
    turned: Array,
    lengths: Array,
    users: Array,
    own_ptr: Pointers,
    own_items: Items,
    points: Array,
    out: Array,
) -> int:
    """The squared distances of all items, up to a constant, to some users, to the centroids of their items, or to both.

    Returns the number of rows of ``out`` per user; ``points`` is scratch space. ``turned`` and ``lengths`` come from
    ``survey(items)``. Several users at once are faster, since the table is read once for all.
    """
    n_points, dim = 0, items.shape[1]
    for user in range(users.shape[0]):
        if flags & 0b01:
            points[n_points] = users[user, :dim]
            n_points += 1
        if flags & 0b10:
            centroid(items, own_items[own_ptr[user] : own_ptr[user + 1]], points[n_points])
            n_points += 1
    product(points, False, turned, out, n_points, turned.shape[1], dim)
    for point in range(n_points):
        row = out[point]
        for i in range(lengths.size):
            row[i] = lengths[i] - np.float32(2) * row[i]
    return (flags & 0b01) + (flags >> 1)


@exact
def rank(distances: Array) -> Items:
    """Turn distances, in place, into integers of the same order; NaN comes after infinity and before ``FARTHEST``.

    The bits of a float are a sign and a magnitude. As integers they are in the right order, except that the order of
    negative ones is reversed.
    """
    ranks = distances.view(np.int32)
    for i in range(ranks.size):
        bits = ranks[i]
        is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
        ranks[i] = FARTHEST - 1 if is_nan else bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return ranks


@exact
def count_up_to(ranks: Items, limit: int) -> int:
    """The number of ranks up to a limit. Counted in 32 bits, so that vector registers hold twice as many."""
    last, count = np.int32(limit), np.int32(0)
    for i in range(ranks.size):
        count = np.int32(count + np.int32(ranks[i] <= last))
    return int(count)


@exact
def span(ranks: Items) -> tuple[int, int]:
    """The lowest and the highest rank."""
    low = high = ranks[0]
    for i in range(ranks.size):
        low, high = min(low, ranks[i]), max(high, ranks[i])
    return int(low), int(high)


@exact
def mark_nearest(distances: Array, own: Items, n: int, marked: Mask) -> None:
    """Mark the n items with the smallest distances that are not own; of equal distances, the lower index.

    ``distances`` is overwritten. The limit is found by bisection: a count is one short vectorised pass, and the search
    ends as soon as n items are within the limit. If several items are exactly at the limit, it may end with too many;
    then the last of these are removed.
    """
    ranks = rank(distances)
    low, limit = span(ranks)
    below, within = low - 1, ranks.size - own.size
    for i in own:
        ranks[i] = FARTHEST
    while within > n and limit - below > 1:
        middle = (below + limit) >> 1
        count = count_up_to(ranks, middle)
        if count >= n:
            limit, within = middle, count
        else:
            below = middle
    i = ranks.size
    while within > n:
        i -= 1
        if ranks[i] == limit:
            ranks[i] = FARTHEST
            within -= 1
    last = np.int32(limit)
    for i in range(ranks.size):
        marked[i] |= ranks[i] <= last


@exact
def mark_pool(R: float, distances: Array, own: Items, marked: Mask) -> None:
    """Set ``marked`` to 1 for the items that negatives may be drawn from and to 0 for all others.

    ``distances`` has one row for each point that items must be near, or no rows if every item is allowed; it is
    overwritten. ``candidate_pool`` is the plain definition.
    """
    marked[:] = distances.shape[0] == 0
    n_near = nearest_count(R, marked.size - own.size)
    if n_near:
        for point in range(distances.shape[0]):
            mark_nearest(distances[point, : marked.size], own, n_near, marked)
    for i in own:
        marked[i] = 0


def point_flags(sampler: Sampler) -> int:
    """What the pool of a built-in sampler must be near: bit 0 the user, bit 1 the user's items."""
    return sampler.near_user | sampler.near_items << 1


def candidate_pool(sampler: Sampler, items: Array, user: Array, own: Items) -> Items:
    """The candidate pool of a sampler, as item indices. Tests compare draws with it."""
    if not sampler.compiled:
        return np.asarray(sampler.pool(items, user, own), np.int32)
    free = np.setdiff1d(np.arange(items.shape[0], dtype=np.int32), own)
    if not point_flags(sampler):
        return free
    points, distances = distance_scratch(1, items)
    own_ptr = np.array([0, own.size])
    n_points = measure(point_flags(sampler), items, *survey(items), user[None], own_ptr, own, points, distances)
    n_near = nearest_count(sampler.R, free.size)
    near = [free[np.argsort(row[free], kind="stable")[:n_near]] for row in distances[:n_points]]
    return np.unique(np.concatenate(near))
