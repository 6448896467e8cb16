"""How negatives are drawn, so that a device can log the draw with about one bit per item.

A keyed stream visits the items in random order, without repetition. Own items are skipped. For every other item one bit
says whether it is in the candidate pool; if it is, it is drawn. The draw ends when enough items are drawn. With the
bits the draw can be repeated without the model that formed the pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.sampling import Items, Mask, distance_scratch, mark_pool, measure, nearest_count
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.workers import next_place

#: The value in ``marked`` of an own item; other items are 1 if they are in the pool, else 0.
OWN = 2
#: Clients whose distances are computed at once: with two points each, they fill a tile of the matrix product.
GROUP = 3

Bits = NDArray[np.uint8]


@exact
def draw_negatives(  # type: ignore[no-untyped-def]
    order, counter, flags, R, items, turned, lengths, users, own_ptr, own_items, bit_ptr, draw_bits, draws
) -> None:
    """Draw for the groups of clients that this worker takes, and write their bits. See ``_negatives``."""
    points, distances = distance_scratch(GROUP, items)
    scratch = _scratch(items.shape[0])
    marked = np.empty(items.shape[0], np.uint8)
    group = next_place(order, counter)
    while group >= 0:
        first, last = GROUP * group, min(GROUP * (group + 1), users.shape[0])
        n_points = measure(
            flags, items, turned, lengths, users[first:last], own_ptr[first : last + 1], own_items, points, distances
        )
        for c in range(first, last):
            own = own_items[own_ptr[c] : own_ptr[c + 1]]
            at = n_points * (c - first)
            mark_pool(R, distances[at : at + n_points], own, marked)
            for i in own:
                marked[i] = OWN
            _negatives(c, scratch, marked, draw_bits[bit_ptr[c] : bit_ptr[c + 1]], False, draws)
        group = next_place(order, counter)


@exact
def draw_from_pools(  # type: ignore[no-untyped-def]
    n_items, pool_ptr, pools, own_ptr, own_items, bit_ptr, draw_bits, draws
) -> None:
    """Draw for all clients, each from a given pool, and write their bits. See ``_negatives``."""
    scratch = _scratch(n_items)
    marked = np.empty(n_items, np.uint8)
    for c in range(pool_ptr.size - 1):
        marked[:] = 0
        for i in pools[pool_ptr[c] : pool_ptr[c + 1]]:
            marked[i] = 1
        for i in own_items[own_ptr[c] : own_ptr[c + 1]]:
            marked[i] = OWN
        _negatives(c, scratch, marked, draw_bits[bit_ptr[c] : bit_ptr[c + 1]], False, draws)


@exact
def redraw_negatives(  # type: ignore[no-untyped-def]
    order, counter, R, n_items, own_ptr, own_items, bit_ptr, draw_bits, draws, sound
) -> None:
    """Repeat the draws of the clients that this worker takes, from their bits. See ``_negatives``."""
    scratch, marked = _scratch(0), np.zeros(0, np.uint8)
    c = next_place(order, counter)
    while c >= 0:
        if n_items[c] != marked.size:
            scratch, marked = _scratch(n_items[c]), np.zeros(n_items[c], np.uint8)
        own = own_items[own_ptr[c] : own_ptr[c + 1]]
        for i in own:
            marked[i] = OWN
        begin, end = bit_ptr[c], bit_ptr[c + 1]
        in_range = 0 <= begin <= end <= draw_bits.size
        bits = draw_bits[begin:end] if in_range else draw_bits[:0]
        draw = _negatives(c, scratch, marked, bits, True, draws)
        n_free = n_items[c] - own.size
        sound[c] = in_range and _fits(bits, draw, n_free - nearest_count(R, n_free))
        if not sound[c]:
            draws[3][c] = 0
        for i in own:
            marked[i] = 0
        c = next_place(order, counter)


@exact
def _scratch(n_items: int) -> Items:
    """A worker's scratch space: all items in order, and three more rows."""
    scratch = np.empty((4, n_items), np.int32)
    scratch[0] = np.arange(n_items)
    return scratch


@exact
def _fits(bits: Bits, draw: tuple[int, int], n_outside: int) -> bool:
    """Whether the bits match their draw: none missing or left over, no more zeros than items outside the pool."""
    n_taken, n_bits = draw
    if n_bits < 0 or (n_bits + 7) // 8 != bits.size or n_bits - n_taken > n_outside:
        return False
    return n_bits % 8 == 0 or bits[-1] >> (n_bits % 8) == 0


@exact
def _negatives(  # type: ignore[no-untyped-def]
    c: int, scratch: Items, marked: Mask, bits: Bits, given: bool, draws
) -> tuple[int, int]:
    """Draw the negatives of client c; returns the result of ``_draw``.

    ``draws`` are, for all clients: the keys of the streams, the offsets ``ptr`` of their draws, ``drawn``, and
    ``found``. Distinct items are written to ``drawn[0]`` and which of them each draw is to ``drawn[1]``. The numbers of
    distinct items, of draws, and of bytes of the bits are written to ``found[c]``. If the pool is too small, items are
    drawn repeatedly; if it is empty, nothing is drawn.
    """
    keys, ptr, drawn, found = draws
    drawn = drawn[:, ptr[c] : ptr[c + 1]]
    state = np.empty(1, np.uint64)
    state[0] = keys[c]
    wanted = drawn.shape[1]
    n_taken, n_bits = _draw(state, scratch, marked, bits, given, wanted)
    if n_taken == wanted:
        for i in range(wanted):
            drawn[0, i] = scratch[2, i]
            drawn[1, i] = i
        found[c, 0] = wanted
    else:
        found[c, 0] = _repeated(state, scratch[2, :n_taken], scratch[3, :n_taken], drawn)
    found[c, 1] = wanted if n_taken else 0
    found[c, 2] = (n_bits + 7) // 8
    return n_taken, n_bits


@exact
def _draw(
    state: randomness.Stream, scratch: Items, marked: Mask, bits: Bits, given: bool, wanted: int
) -> tuple[int, int]:
    """Visit items until enough are drawn. ``bits`` are read if ``given``, else written; then they must be zeros.

    Returns the number of items drawn, which are in ``scratch[2]``, and the number of bits, or -1 if bits are missing.
    """
    deck, swapped, taken = scratch[0], scratch[1], scratch[2]
    n_seen = n_taken = n_bits = 0
    while n_taken < wanted and n_seen < deck.size:
        j = n_seen + randomness.below(state, deck.size - n_seen)
        item = deck[j]
        deck[j] = deck[n_seen]
        deck[n_seen] = item
        swapped[n_seen] = j
        n_seen += 1
        if marked[item] == OWN:
            continue
        byte, place = n_bits >> 3, n_bits & 7
        if not given:
            bits[byte] |= np.uint8(marked[item] << place)
        elif byte == bits.size:
            n_bits = -1
            break
        taken[n_taken] = item
        n_taken += (bits[byte] >> place) & 1
        n_bits += 1
    for i in range(n_seen):
        deck[i] = i
        deck[swapped[i]] = swapped[i]
    return n_taken, n_bits


@exact
def _repeated(state: randomness.Stream, pool: Items, place: Items, drawn: Items) -> int:
    """Draw from the pool with replacement; returns the number of distinct items."""
    place[:] = -1
    distinct = 0
    if pool.size:
        for i in range(drawn.shape[1]):
            k = randomness.below(state, pool.size)
            if place[k] < 0:
                place[k] = distinct
                drawn[0, distinct] = pool[k]
                distinct += 1
            drawn[1, i] = place[k]
    return distinct
