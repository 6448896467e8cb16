"""How negatives are drawn, so that a device can log the draw with about one bit an item.

A keyed stream goes through the items in random order, without repetition. Own items are skipped; for every other item
one bit says whether it is in the candidate pool, and so is drawn. The draw ends when enough are drawn. With the bits
the same draw can be repeated without the model that formed the pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget.device.sampling import Items, Mask, Pointers, distance_scratch, mark_pool, measure, nearest_count
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.workers import next_place

#: What ``marked`` says of an own item; others are 1 or 0, in the pool or not.
OWN = 2
#: Clients whose distances are measured at once: with two points each, a product's tile is full.
GROUP = 3

Bits = NDArray[np.uint8]


@exact
def draw_negatives(  # type: ignore[no-untyped-def]
    order,
    counter,
    flags,
    R,
    items,
    turned,
    lengths,
    users,
    own_ptr,
    own_items,
    keys,
    bit_ptr,
    draw_bits,
    draw_ptr,
    drawn,
    found,
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
            bits = draw_bits[bit_ptr[c] : bit_ptr[c + 1]]
            _negatives(keys[c], scratch, marked, bits, False, drawn[:, draw_ptr[c] : draw_ptr[c + 1]], found[c])
        group = next_place(order, counter)


@exact
def draw_from_pools(  # type: ignore[no-untyped-def]
    order, counter, n_items, pool_ptr, pools, own_ptr, own_items, keys, bit_ptr, draw_bits, draw_ptr, drawn, found
) -> None:
    """Draw for the clients that this worker takes, each from a given pool, and write their bits."""
    scratch = _scratch(n_items)
    marked = np.empty(n_items, np.uint8)
    c = next_place(order, counter)
    while c >= 0:
        marked[:] = 0
        for i in pools[pool_ptr[c] : pool_ptr[c + 1]]:
            marked[i] = 1
        for i in own_items[own_ptr[c] : own_ptr[c + 1]]:
            marked[i] = OWN
        bits = draw_bits[bit_ptr[c] : bit_ptr[c + 1]]
        _negatives(keys[c], scratch, marked, bits, False, drawn[:, draw_ptr[c] : draw_ptr[c + 1]], found[c])
        c = next_place(order, counter)


@exact
def redraw_negatives(  # type: ignore[no-untyped-def]
    order, counter, R, n_items, own_ptr, own_items, keys, bit_ptr, draw_bits, draw_ptr, drawn, found, sound
) -> None:
    """Repeat the draws of the clients that this worker takes, from their bits. See ``_negatives``."""
    scratch = _scratch(n_items)
    marked = np.zeros(n_items, np.uint8)
    c = next_place(order, counter)
    while c >= 0:
        own = own_items[own_ptr[c] : own_ptr[c + 1]]
        for i in own:
            marked[i] = OWN
        begin, end = bit_ptr[c], bit_ptr[c + 1]
        there = 0 <= begin <= end <= draw_bits.size
        bits = draw_bits[begin:end] if there else draw_bits[:0]
        draw = _negatives(keys[c], scratch, marked, bits, True, drawn[:, draw_ptr[c] : draw_ptr[c + 1]], found[c])
        n_free = n_items - own.size
        sound[c] = there and _fits(bits, draw, n_free - nearest_count(R, n_free))
        if not sound[c]:
            found[c] = 0
        for i in own:
            marked[i] = 0
        c = next_place(order, counter)


@exact
def _scratch(n_items: int) -> Items:
    """A worker's scratch: all items in order, and three rows more."""
    scratch = np.empty((4, n_items), np.int32)
    scratch[0] = np.arange(n_items)
    return scratch


@exact
def _fits(bits: Bits, draw: tuple[int, int], n_outside: int) -> bool:
    """Whether the bits fit their draw: none missing or left over, no more zeros than items outside the pool."""
    n_taken, n_bits = draw
    if n_bits < 0 or (n_bits + 7) // 8 != bits.size or n_bits - n_taken > n_outside:
        return False
    return n_bits % 8 == 0 or bits[-1] >> (n_bits % 8) == 0


@exact
def _negatives(
    key: np.uint64, scratch: Items, marked: Mask, bits: Bits, given: bool, drawn: Items, found: Pointers
) -> tuple[int, int]:
    """One client's negatives: distinct items to ``drawn[0]``, and which of them each draw is to ``drawn[1]``.

    ``found`` gets the numbers of distinct items, of draws, and of bytes of the bits. Where the pool is too small, items
    are drawn repeatedly; where it is empty, nothing is drawn. Returns what ``_draw`` returned.
    """
    state = np.empty(1, np.uint64)
    state[0] = key
    wanted = drawn.shape[1]
    n_taken, n_bits = _draw(state, scratch, marked, bits, given, wanted)
    if n_taken == wanted:
        for i in range(wanted):
            drawn[0, i] = scratch[2, i]
            drawn[1, i] = i
        found[0] = wanted
    else:
        found[0] = _repeated(state, scratch[2, :n_taken], scratch[3, :n_taken], drawn)
    found[1] = wanted if n_taken else 0
    found[2] = (n_bits + 7) // 8
    return n_taken, n_bits


@exact
def _draw(
    state: randomness.Stream, scratch: Items, marked: Mask, bits: Bits, given: bool, wanted: int
) -> tuple[int, int]:
    """Go through items until enough are drawn. ``bits`` are followed if ``given``, else written; they start as zeros.

    Returns the number of items drawn, which are in ``scratch[2]``, and the number of bits: -1 if some are missing.
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
