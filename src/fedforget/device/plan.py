"""Plan: what each client of a cohort trains on in a round, drawn before training starts.

Every trainer (plain, stacked, compiled) uses the same plan, so that tests can compare them number by number. The bits
of the draw (``device.negative_draw``) can be logged, to repeat it later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.device.negative_draw import GROUP, Bits, draw_from_pools, draw_negatives, redraw_negatives
from fedforget.device.sampling import Items, Pointers, point_flags, survey
from fedforget.errors import ConfigError
from fedforget.models.parameters import Array
from fedforget.protocol.sampler import Sampler
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.ragged import offsets
from fedforget.runtime.randomness import Rounds
from fedforget.runtime.workers import Places, Workers

#: Below this number of draws, redrawing takes less time than starting another worker.
WORTH_SHARING = 30_000


@dataclass(frozen=True)
class Plan:
    """The local data of C clients, end to end.

    Client c uses the item rows ``items[item_ptr[c]:item_ptr[c + 1]]``, its own training items first
    (``positives[c]`` of them), then its negatives. Its samples ``sample_ptr[c]:sample_ptr[c + 1]`` are positions in
    that list: ``left`` is the item scored; ``right`` is -1, or for the pairwise loss the negative it is compared with.
    ``batch_keys`` are the keys of the streams that shuffle each client's samples.

    ``draw_bits[bit_ptr[c]:bit_ptr[c + 1]]`` are the bits of client c's draw, first bit lowest, the last byte padded
    with zeros. Only ``redraw_plan`` needs them; training does not.
    """

    item_ptr: Pointers
    items: Items
    positives: NDArray[np.int64]
    sample_ptr: Pointers
    left: Items
    right: Items
    batch_keys: NDArray[np.uint64]
    bit_ptr: Pointers = field(default_factory=lambda: np.zeros(1, np.int64))
    draw_bits: Bits = field(default_factory=lambda: np.empty(0, np.uint8))

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

    ``rounds`` is the round, or the round of each client if the plan is for several rounds.
    """
    if negatives == 0:
        return own_plan(own_ptr, own_items)
    positives = np.diff(own_ptr)
    bit_ptr = offsets((items.shape[0] - positives + 7) // 8)
    draw_bits = np.zeros(bit_ptr[-1], np.uint8)
    draws = _empty_draws(sampler.count(negatives, positives), seed, rounds, user_keys)
    items = np.ascontiguousarray(items)
    common = own_ptr, own_items, bit_ptr, draw_bits, draws
    if sampler.compiled:
        turned, lengths = survey(items)

        def draw(order: Places, counter: Places) -> None:
            draw_negatives(order, counter, point_flags(sampler), sampler.R, items, turned, lengths, users, *common)

        workers.run(draw, costs=np.add.reduceat(positives, np.arange(0, positives.size, GROUP)))
    else:
        draw_from_pools(len(items), *_pools(sampler, items, users, own_ptr, own_items), *common)
    return _laid_out(pairwise, *common, randomness.priorities(seed, randomness.BATCHES, rounds, user_keys))


def _pools(sampler: Sampler, items: Array, users: Array, own_ptr: Pointers, own_items: Items) -> tuple[Pointers, Items]:
    """The candidate pool of each client, from a custom sampler."""
    pools = []
    for client, user in enumerate(users):
        own = own_items[own_ptr[client] : own_ptr[client + 1]]
        pool = np.asarray(sampler.pool(items, user, own))
        if pool.ndim != 1 or (pool.size and (pool.min() < 0 or pool.max() >= len(items))):
            raise ConfigError(
                f"Sampler {sampler.name!r} returned a pool with items that do not exist.",
                f"pool() must return item indices from 0 to {len(items) - 1}.",
            )
        pools.append(pool.astype(np.int32))
    return offsets([pool.size for pool in pools]), np.concatenate([np.empty(0, np.int32), *pools])


def redraw_plan(
    sampler: Sampler,
    *,
    negatives: int,
    pairwise: bool,
    n_items: NDArray[np.int64],
    own_ptr: Pointers,
    own_items: Items,
    user_keys: NDArray[np.uint64],
    seed: int,
    rounds: Rounds,
    bit_ptr: Pointers,
    draw_bits: Bits,
    workers: Workers,
) -> tuple[Plan, NDArray[np.bool_]]:
    """The plan of an earlier ``draw_plan``, from the bits of the draw instead of the model; and whose bits are valid.

    ``n_items`` is the number of items in the round of each client. Bits are valid if none are missing or left over and
    there are no more zeros than items outside the pool. Clients with invalid bits get no negatives.
    """
    if negatives == 0:
        return own_plan(own_ptr, own_items), np.diff(bit_ptr) == 0
    positives = np.diff(own_ptr)
    draws = _empty_draws(sampler.count(negatives, positives), seed, rounds, user_keys)
    sound = np.empty(positives.size, np.bool_)
    share = sampler.R if point_flags(sampler) else 100.0
    share = share if sampler.compiled else 0.0  # the size of other pools is not known
    # Bytes from a log are read-only, which is another type to the compiler.
    common = own_ptr, own_items, bit_ptr, np.require(draw_bits, requirements=["C", "W"]), draws

    def redraw(order: Places, counter: Places) -> None:
        redraw_negatives(order, counter, share, n_items, *common, sound)

    n_draws = np.diff(draws[1])
    workers.run(redraw, n_draws, worth_sharing=bool(n_draws.sum() >= WORTH_SHARING))
    batch_keys = randomness.priorities(seed, randomness.BATCHES, rounds, user_keys)
    return _laid_out(pairwise, *common, batch_keys), sound


def _empty_draws(
    counts: NDArray[np.int64], seed: int, rounds: Rounds, user_keys: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], Pointers, Items, Pointers]:
    """Stream keys, offsets and memory for this number of draws of each client; see ``negative_draw._negatives``."""
    keys = randomness.priorities(seed, randomness.NEGATIVES, rounds, user_keys)
    ptr = offsets(counts)
    return keys, ptr, np.empty((2, ptr[-1]), np.int32), np.empty((counts.size, 3), np.int64)


def choose(first: Plan, second: Plan, use_second: NDArray[np.bool_]) -> Plan:
    """Of each client the plan from the first or, where marked, from the second; both are for the same clients."""

    def merged(a_ptr: Pointers, a: NDArray[Any], b_ptr: Pointers, b: NDArray[Any]) -> tuple[Pointers, NDArray[Any]]:
        sizes = np.where(use_second, np.diff(b_ptr), np.diff(a_ptr))
        ptr = offsets(sizes)
        starts = np.where(use_second, b_ptr[:-1] + a.size, a_ptr[:-1])
        return ptr, np.concatenate([a, b])[np.repeat(starts - ptr[:-1], sizes) + np.arange(ptr[-1])]

    item_ptr, items = merged(first.item_ptr, first.items, second.item_ptr, second.items)
    sample_ptr, left = merged(first.sample_ptr, first.left, second.sample_ptr, second.left)
    _, right = merged(first.sample_ptr, first.right, second.sample_ptr, second.right)
    bit_ptr, bits = merged(first.bit_ptr, first.draw_bits, second.bit_ptr, second.draw_bits)
    positives = np.where(use_second, second.positives, first.positives)
    keys = np.where(use_second, second.batch_keys, first.batch_keys)
    return Plan(item_ptr, items, positives, sample_ptr, left, right, keys, bit_ptr, bits)


def own_plan(own_ptr: Pointers, own_items: Items) -> Plan:
    """The plan of a model without negatives: the clients' own items, and no samples."""
    none, nothing = np.zeros(own_ptr.size, np.int64), np.empty(0, np.int32)
    keys = np.zeros(own_ptr.size - 1, np.uint64)
    return Plan(own_ptr, own_items, np.diff(own_ptr), none, nothing, nothing, keys, none)


@exact
def _sizes(pairwise: bool, own_ptr: Pointers, found: Pointers) -> Pointers:
    """Where each client's rows, samples and bits end."""
    n_clients = found.shape[0]
    ptr = np.zeros((3, n_clients + 1), np.int64)
    for c in range(n_clients):
        n_own, n_draws = own_ptr[c + 1] - own_ptr[c], found[c, 1]
        pairs = max(n_own, n_draws) if min(n_own, n_draws) > 0 else 0
        ptr[0, c + 1] = ptr[0, c] + n_own + found[c, 0]
        ptr[1, c + 1] = ptr[1, c] + (pairs if pairwise else n_own + n_draws)
        ptr[2, c + 1] = ptr[2, c] + found[c, 2]
    return ptr


def _laid_out(  # type: ignore[no-untyped-def]
    pairwise: bool, own_ptr: Pointers, own_items: Items, bit_ptr: Pointers, draw_bits: Bits, draws, batch_keys
) -> Plan:
    """The plan with these draws."""
    ptr, rows, left, right, kept = _lay_out(pairwise, own_ptr, own_items, bit_ptr, draw_bits, draws)
    return Plan(ptr[0], rows, np.diff(own_ptr), ptr[1], left, right, batch_keys, ptr[2], kept)


@exact
def _lay_out(  # type: ignore[no-untyped-def]
    pairwise, own_ptr, own_items, bit_ptr, draw_bits, draws
) -> tuple[Pointers, Items, Items, Items, Bits]:
    """Rows, samples and bits of all clients end to end: offsets of the three, rows, both sides of samples, bits."""
    _, draw_ptr, drawn, found = draws
    ptr = _sizes(pairwise, own_ptr, found)
    items, kept = np.empty(ptr[0, -1], np.int32), np.empty(ptr[2, -1], np.uint8)
    left, right = np.empty(ptr[1, -1], np.int32), np.empty(ptr[1, -1], np.int32)
    for c in range(found.shape[0]):
        own = own_items[own_ptr[c] : own_ptr[c + 1]]
        rows = items[ptr[0, c] : ptr[0, c + 1]]
        rows[: own.size] = own
        rows[own.size :] = drawn[0, draw_ptr[c] : draw_ptr[c] + found[c, 0]]
        kept[ptr[2, c] : ptr[2, c + 1]] = draw_bits[bit_ptr[c] : bit_ptr[c] + found[c, 2]]
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
    """Samples of two items: positives and draws in turn; the shorter list is repeated."""
    a = b = 0
    for i in range(left.size):
        left[i], right[i] = a, n_own + draws[b]
        a = a + 1 if a + 1 < n_own else 0
        b = b + 1 if b + 1 < draws.size else 0
