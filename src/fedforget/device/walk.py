"""Walks: how negatives are drawn so that a device can log which ones at about one bit each.

A keyed stream turns over the items one by one, without repetition; own items are passed over, and of each other item a
bit says whether it was in the candidate pool, and so was taken. The walk ends when enough are taken. Whoever has the
bits can take the same walk again without the model that the pool was formed with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedforget import randomness
from fedforget.compiled import exact
from fedforget.device.sampling import Items, Mask, Pointers, distance_scratch, mark_pool, measure, nearest_count
from fedforget.workers import next_place

#: What ``marked`` says of an own item; others are 1 or 0, in the pool or not.
OWN = 2
#: Clients whose distances are measured at once: with two points each, a product's tile is full.
GROUP = 3

Bits = NDArray[np.uint8]


@exact
def draw_walks(  # type: ignore[no-untyped-def]
    order, counter, flags, R, items, turned, lengths, users, own_ptr, own_items, keys, walk_ptr, walks, draw_ptr, drawn,
    found,
) -> None:  # fmt: skip
    """Draw for each group of clients that falls to this worker, writing the walks. See ``_negatives``."""
    points, distances = distance_scratch(GROUP, items)
    cards = _cards(items.shape[0])
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
            bits = walks[walk_ptr[c] : walk_ptr[c + 1]]
            _negatives(keys[c], cards, marked, bits, False, drawn[:, draw_ptr[c] : draw_ptr[c + 1]], found[c])
        group = next_place(order, counter)


@exact
def follow_walks(  # type: ignore[no-untyped-def]
    order, counter, R, n_items, own_ptr, own_items, keys, walk_ptr, walks, draw_ptr, drawn, found, sound
) -> None:  # fmt: skip
    """Draw for each client that falls to this worker, following the walks. For the rest, see ``_negatives``."""
    cards = _cards(n_items)
    marked = np.zeros(n_items, np.uint8)
    c = next_place(order, counter)
    while c >= 0:
        own = own_items[own_ptr[c] : own_ptr[c + 1]]
        for i in own:
            marked[i] = OWN
        begin, end = walk_ptr[c], walk_ptr[c + 1]
        there = 0 <= begin <= end <= walks.size
        bits = walks[begin:end] if there else walks[:0]
        walked = _negatives(keys[c], cards, marked, bits, True, drawn[:, draw_ptr[c] : draw_ptr[c + 1]], found[c])
        n_free = n_items - own.size
        sound[c] = there and _fits(bits, walked, n_free - nearest_count(R, n_free))
        if not sound[c]:
            found[c] = 0
        for i in own:
            marked[i] = 0
        c = next_place(order, counter)


@exact
def _cards(n_items: int) -> Items:
    """A worker's scratch: all items in order, and three rows more."""
    cards = np.empty((4, n_items), np.int32)
    cards[0] = np.arange(n_items)
    return cards


@exact
def _fits(bits: Bits, walked: tuple[int, int], n_outside: int) -> bool:
    """Whether bits are those of the walk they led: all there, none left, no more zeros than items outside the pool."""
    n_taken, n_bits = walked
    if n_bits < 0 or (n_bits + 7) // 8 != bits.size or n_bits - n_taken > n_outside:
        return False
    return n_bits % 8 == 0 or bits[-1] >> (n_bits % 8) == 0


@exact
def _negatives(
    key: np.uint64, cards: Items, marked: Mask, bits: Bits, given: bool, drawn: Items, found: Pointers
) -> tuple[int, int]:
    """One client's negatives: distinct items to ``drawn[0]``, and which of them each draw is to ``drawn[1]``.

    ``found`` gets the numbers of distinct items, of draws, and of bytes of the walk. Where the pool is too small, items
    are drawn repeatedly; where it is empty, nothing is drawn. Returns what ``_walk`` returned.
    """
    state = np.empty(1, np.uint64)
    state[0] = key
    wanted = drawn.shape[1]
    n_taken, n_bits = _walk(state, cards, marked, bits, given, wanted)
    if n_taken == wanted:
        for i in range(wanted):
            drawn[0, i] = cards[2, i]
            drawn[1, i] = i
        found[0] = wanted
    else:
        found[0] = _repeated(state, cards[2, :n_taken], cards[3, :n_taken], drawn)
    found[1] = wanted if n_taken else 0
    found[2] = (n_bits + 7) // 8
    return n_taken, n_bits


@exact
def _walk(
    state: randomness.Stream, cards: Items, marked: Mask, bits: Bits, given: bool, wanted: int
) -> tuple[int, int]:
    """Turn over items until so many are taken. ``bits`` are followed if ``given``, else written; they start as zeros.

    Returns the number of items taken, which stand in ``cards[2]``, and the number of bits: -1 if some are missing.
    """
    deck, swapped, taken = cards[0], cards[1], cards[2]
    n_turned = n_taken = n_bits = 0
    while n_taken < wanted and n_turned < deck.size:
        j = n_turned + randomness.below(state, deck.size - n_turned)
        item = deck[j]
        deck[j] = deck[n_turned]
        deck[n_turned] = item
        swapped[n_turned] = j
        n_turned += 1
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
    for i in range(n_turned):
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
