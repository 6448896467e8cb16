"""Plan: what each client of a cohort trains on this round, drawn before training starts.

Every trainer (the plain loop, the stacked tensors, the compiled kernels) works off the same plan, which is why they
can be compared number by number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget import randomness
from fedforget.compiled import exact
from fedforget.device.sampling import FLAGS, Items, Sampler, candidate_pool, survey
from fedforget.models.parameters import Array
from fedforget.workers import Places, Workers, next_place


@dataclass(frozen=True)
class Plan:
    """The local data of C clients, end to end.

    Client c uses the item rows ``items[item_ptr[c]:item_ptr[c + 1]]``, its own training items first
    (``positives[c]`` of them), then its negatives. Its samples ``sample_ptr[c]:sample_ptr[c + 1]`` name positions in
    that list: ``left`` is the item scored; ``right`` is -1, or for the pairwise loss the negative it is compared with.
    ``batch_keys`` name the streams that shuffle each client's samples.
    """

    item_ptr: NDArray[np.int64]
    items: Items
    positives: NDArray[np.int64]
    sample_ptr: NDArray[np.int64]
    left: Items
    right: Items
    batch_keys: NDArray[np.uint64]

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
    own_ptr: NDArray[np.int64],
    own_items: Items,
    user_keys: NDArray[np.uint64],
    seed: int,
    round_: int,
    workers: Workers,
) -> Plan:
    """Draw the negatives of a cohort. Client c's own items are ``own_items[own_ptr[c]:own_ptr[c + 1]]``."""
    positives = np.diff(own_ptr)
    wanted = np.array([sampler.count(negatives, int(n)) for n in positives], np.int64)
    item_ptr = np.concatenate([[0], np.cumsum(positives + wanted)])
    rows = np.empty(item_ptr[-1], np.int32)
    drawn = np.empty(int(wanted.sum()), np.int32)
    draw_ptr = np.concatenate([[0], np.cumsum(wanted)])
    found = np.empty((positives.size, 2), np.int64)
    keys = randomness.priorities(seed, randomness.NEGATIVES, round_, user_keys)

    turned, lengths = survey(items)

    def run(order: Places, counter: Places) -> None:
        _draw(
            order, counter, FLAGS[sampler.kind], sampler.R, items, turned, lengths, users, own_ptr, own_items, keys,
            item_ptr, rows, draw_ptr, drawn, found,
        )  # fmt: skip

    workers.run(run, costs=positives + 1)
    if (found[:, 0] < wanted).any():
        item_ptr, rows = _closed_up(item_ptr, rows, positives + found[:, 0])
        draw_ptr, drawn = _closed_up(draw_ptr, drawn, found[:, 1])
    sample_ptr, left, right = _samples(positives, draw_ptr, drawn, pairwise)
    batch_keys = randomness.priorities(seed, randomness.BATCHES, round_, user_keys)
    return Plan(item_ptr, rows, positives, sample_ptr, left, right, batch_keys)


@exact
def _draw(  # type: ignore[no-untyped-def]
    order, counter, flags, R, items, turned, lengths, users, own_ptr, own_items, keys,
    item_ptr, rows, draw_ptr, drawn, found,
) -> None:  # fmt: skip
    """For each client that falls to this worker: its rows (own items, then distinct negatives), and its draws.

    Draws are positions among the rows. ``found`` gets the number of distinct negatives and the number of draws: fewer
    than wanted only where the pool is too small (then items repeat) or empty (then nothing is drawn).
    """
    mask = np.zeros(items.shape[0], np.uint8)
    place_of = np.empty(items.shape[0], np.int32)
    state = np.empty(1, np.uint64)
    c = next_place(order, counter)
    while c >= 0:
        own = own_items[own_ptr[c] : own_ptr[c + 1]]
        out = rows[item_ptr[c] : item_ptr[c + 1]]
        draws = drawn[draw_ptr[c] : draw_ptr[c + 1]]
        out[: own.size] = own
        state[0] = keys[c]
        pool = candidate_pool(flags, R, items, turned, lengths, users[c], own, mask)
        distinct = 0
        if pool.size >= draws.size:
            randomness.choose(state, pool, draws.size)
            for i in range(draws.size):
                out[own.size + i] = pool[i]
                draws[i] = own.size + i
            distinct = draws.size
        elif pool.size > 0:
            for i in range(draws.size):
                item = pool[randomness.below(state, pool.size)]
                if mask[item] == 0:
                    mask[item] = 1
                    place_of[item] = own.size + distinct
                    out[own.size + distinct] = item
                    distinct += 1
                draws[i] = place_of[item]
            for i in range(distinct):
                mask[out[own.size + i]] = 0
        found[c, 0] = distinct
        found[c, 1] = draws.size if pool.size > 0 else 0
        c = next_place(order, counter)


def _closed_up(ptr: NDArray[np.int64], values: Items, kept: NDArray[np.int64]) -> tuple[NDArray[np.int64], Items]:
    """Drop the unused end of each client's part."""
    within = np.arange(values.size) - np.repeat(ptr[:-1], np.diff(ptr))
    return np.concatenate([[0], np.cumsum(kept)]), values[within < np.repeat(kept, np.diff(ptr))]


def _samples(
    positives: NDArray[np.int64], draw_ptr: NDArray[np.int64], drawn: Items, pairwise: bool
) -> tuple[NDArray[np.int64], Items, Items]:
    """The samples of a round: positives and draws one by one, or paired in turn until both are used up."""
    draws = np.diff(draw_ptr)
    counts = np.where(draws > 0, np.maximum(positives, draws), 0) if pairwise else positives + draws
    ptr = np.concatenate([[0], np.cumsum(counts)])
    client = np.repeat(np.arange(positives.size), counts)
    within = np.arange(ptr[-1]) - ptr[client]
    n_pos, n_draw = positives[client], draws[client]
    if pairwise:
        left = within % n_pos
        right = drawn[draw_ptr[client] + within % n_draw]
        return ptr, left.astype(np.int32), right
    is_draw = within >= n_pos
    left = within.astype(np.int32)
    left[is_draw] = drawn[(draw_ptr[client] + within - n_pos)[is_draw]]
    return ptr, left, np.full(left.size, -1, np.int32)
