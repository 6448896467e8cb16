"""Plan: what each client of a cohort trains on this round, drawn before training starts.

Every trainer (the plain loop, the stacked tensors, the compiled kernels) works off the same plan, which is why they
can be compared number by number.

Negatives are drawn by a walk over the items (``device.walk``), which a device can keep and follow again later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedforget import randomness
from fedforget.compiled import exact
from fedforget.device.sampling import FLAGS, Items, Pointers, Sampler, survey
from fedforget.device.walk import GROUP, Bits, draw_walks, follow_walks
from fedforget.models.parameters import Array
from fedforget.randomness import Rounds
from fedforget.workers import Places, Workers

#: Draws below which redrawing them all takes less time than waking another worker.
WORTH_SHARING = 30_000


def _no_walks() -> Pointers:
    return np.zeros(1, np.int64)


def _no_bits() -> Bits:
    return np.empty(0, np.uint8)


@dataclass(frozen=True)
class Plan:
    """The local data of C clients, end to end.

    Client c uses the item rows ``items[item_ptr[c]:item_ptr[c + 1]]``, its own training items first
    (``positives[c]`` of them), then its negatives. Its samples ``sample_ptr[c]:sample_ptr[c + 1]`` name positions in
    that list: ``left`` is the item scored; ``right`` is -1, or for the pairwise loss the negative it is compared with.
    ``batch_keys`` name the streams that shuffle each client's samples.

    ``walks[walk_ptr[c]:walk_ptr[c + 1]]`` are the bits of client c's walk, first bit lowest, the last byte filled up
    with zeros: what ``redraw_plan`` needs. Training does not, so a plan made by hand may be without.
    """

    item_ptr: Pointers
    items: Items
    positives: NDArray[np.int64]
    sample_ptr: Pointers
    left: Items
    right: Items
    batch_keys: NDArray[np.uint64]
    walk_ptr: Pointers = field(default_factory=_no_walks)
    walks: Bits = field(default_factory=_no_bits)

    def __len__(self) -> int:
        return int(self.positives.size)

    def client_items(self, client: int) -> Items:
        """The item rows that one client uses, as indices into the item table."""
        return self.items[self.item_ptr[client] : self.item_ptr[client + 1]]

    def client_samples(self, client: int) -> tuple[Items, Items]:
        """The (left, right) sides of one client's samples."""
        place = slice(self.sample_ptr[client], self.sample_ptr[client + 1])
        return self.left[place], self.right[place]


def draw_plan(
    sampler: Sampler,
    *,
    negatives: int,
    pairwise: bool,
    items: Array,
    users: Array,
    own_ptr: Pointers,
    own_items: Items,
    user_keys: NDArray[np.uint64],
    seed: int,
    rounds: Rounds,
    workers: Workers,
) -> Plan:
    """Draw the negatives of a cohort. Client c's own items are ``own_items[own_ptr[c]:own_ptr[c + 1]]``.

    ``rounds`` is the round, or that of each client, where one plan is for several rounds.
    """
    if negatives == 0:
        return own_plan(own_ptr, own_items)
    positives = np.diff(own_ptr)
    draw_ptr = _ends(sampler.count(negatives, positives))
    walk_ptr = _ends((items.shape[0] - positives + 7) // 8)
    walks = np.zeros(walk_ptr[-1], np.uint8)
    drawn = np.empty((2, draw_ptr[-1]), np.int32)
    found = np.empty((positives.size, 3), np.int64)
    keys = randomness.priorities(seed, randomness.NEGATIVES, rounds, user_keys)
    items = np.ascontiguousarray(items)
    turned, lengths = survey(items)

    def draw(order: Places, counter: Places) -> None:
        draw_walks(
            order, counter, FLAGS[sampler.kind], sampler.R, items, turned, lengths, users, own_ptr, own_items, keys,
            walk_ptr, walks, draw_ptr, drawn, found,
        )  # fmt: skip

    workers.run(draw, costs=np.add.reduceat(positives, np.arange(0, positives.size, GROUP)))
    ptr, rows, left, right, kept = _laid_out(pairwise, own_ptr, own_items, draw_ptr, drawn, walk_ptr, walks, found)
    batch_keys = randomness.priorities(seed, randomness.BATCHES, rounds, user_keys)
    return Plan(ptr[0], rows, positives, ptr[1], left, right, batch_keys, ptr[2], kept)


def redraw_plan(
    sampler: Sampler,
    *,
    negatives: int,
    pairwise: bool,
    n_items: int,
    own_ptr: Pointers,
    own_items: Items,
    user_keys: NDArray[np.uint64],
    seed: int,
    rounds: Rounds,
    walk_ptr: Pointers,
    walks: Bits,
    workers: Workers,
) -> tuple[Plan, NDArray[np.bool_]]:
    """The plan that ``draw_plan`` made, from its walks instead of the model; and whether each client's walk is sound.

    A walk is sound if it has just the bits that the draw needs, and no more zeros than items outside the pool. A client
    whose walk is not gets no negatives.
    """
    if negatives == 0:
        return own_plan(own_ptr, own_items), np.diff(walk_ptr) == 0
    positives = np.diff(own_ptr)
    draw_ptr = _ends(sampler.count(negatives, positives))
    drawn = np.empty((2, draw_ptr[-1]), np.int32)
    found = np.empty((positives.size, 3), np.int64)
    sound = np.empty(positives.size, np.bool_)
    keys = randomness.priorities(seed, randomness.NEGATIVES, rounds, user_keys)
    share = 100.0 if sampler.kind == "random" else sampler.R
    walks = np.require(walks, requirements=["C", "W"])  # bytes from a log are read-only, another type to the compiler

    def redraw(order: Places, counter: Places) -> None:
        follow_walks(
            order, counter, share, n_items, own_ptr, own_items, keys, walk_ptr, walks, draw_ptr, drawn, found, sound
        )

    workers.run(redraw, np.diff(draw_ptr), worth_sharing=bool(draw_ptr[-1] >= WORTH_SHARING))
    ptr, rows, left, right, kept = _laid_out(pairwise, own_ptr, own_items, draw_ptr, drawn, walk_ptr, walks, found)
    batch_keys = randomness.priorities(seed, randomness.BATCHES, rounds, user_keys)
    return Plan(ptr[0], rows, positives, ptr[1], left, right, batch_keys, ptr[2], kept), sound


def own_plan(own_ptr: Pointers, own_items: Items) -> Plan:
    """The plan of a model that needs no negatives: the clients' own items, and nothing to shuffle."""
    none, nothing = np.zeros(own_ptr.size, np.int64), np.empty(0, np.int32)
    keys = np.zeros(own_ptr.size - 1, np.uint64)
    return Plan(own_ptr, own_items, np.diff(own_ptr), none, nothing, nothing, keys, none)


def _ends(counts: NDArray[np.int64]) -> Pointers:
    ptr = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


@exact
def _sizes(pairwise: bool, own_ptr: Pointers, found: Pointers) -> Pointers:
    """Where each client's rows, samples and walk end."""
    n_clients = found.shape[0]
    ptr = np.zeros((3, n_clients + 1), np.int64)
    for c in range(n_clients):
        n_own, n_draws = own_ptr[c + 1] - own_ptr[c], found[c, 1]
        pairs = max(n_own, n_draws) if min(n_own, n_draws) > 0 else 0
        ptr[0, c + 1] = ptr[0, c] + n_own + found[c, 0]
        ptr[1, c + 1] = ptr[1, c] + (pairs if pairwise else n_own + n_draws)
        ptr[2, c + 1] = ptr[2, c] + found[c, 2]
    return ptr


@exact
def _laid_out(
    pairwise: bool, own_ptr: Pointers, own_items: Items, draw_ptr: Pointers, drawn: Items, walk_ptr: Pointers,
    walks: Bits, found: Pointers,
) -> tuple[Pointers, Items, Items, Items, Bits]:  # fmt: skip
    """Rows, samples and walks of all clients end to end: pointers to the three, rows, both sides of samples, walks."""
    ptr = _sizes(pairwise, own_ptr, found)
    items, kept = np.empty(ptr[0, -1], np.int32), np.empty(ptr[2, -1], np.uint8)
    left, right = np.empty(ptr[1, -1], np.int32), np.empty(ptr[1, -1], np.int32)
    for c in range(found.shape[0]):
        own = own_items[own_ptr[c] : own_ptr[c + 1]]
        rows = items[ptr[0, c] : ptr[0, c + 1]]
        rows[: own.size] = own
        rows[own.size :] = drawn[0, draw_ptr[c] : draw_ptr[c] + found[c, 0]]
        kept[ptr[2, c] : ptr[2, c + 1]] = walks[walk_ptr[c] : walk_ptr[c] + found[c, 2]]
        draws = drawn[1, draw_ptr[c] : draw_ptr[c] + found[c, 1]]
        part = slice(ptr[1, c], ptr[1, c + 1])
        if pairwise:
            _pair(own.size, draws, left[part], right[part])
        else:
            _line_up(own.size, draws, left[part], right[part])
    return ptr, items, left, right, kept


@exact
def _line_up(n_own: int, draws: Items, left: Items, right: Items) -> None:
    """Samples of one item: the positives, then the draws."""
    right[:] = -1
    for i in range(n_own):
        left[i] = i
    for i in range(draws.size):
        left[n_own + i] = n_own + draws[i]


@exact
def _pair(n_own: int, draws: Items, left: Items, right: Items) -> None:
    """Samples of two: positives and draws in turn, over again until both are used up."""
    a = b = 0
    for i in range(left.size):
        left[i], right[i] = a, n_own + draws[b]
        a = a + 1 if a + 1 < n_own else 0
        b = b + 1 if b + 1 < draws.size else 0
