"""Fixed point: sums of updates modulo 2^32 are exact up to the stated rounding, and never wrap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedforget.protocol.bounds import DENSE, Bounds
from fedforget.protocol.fixed_point import SumFormat, add_up, decode_fractions, encode_fractions
from fedforget.protocol.updates import Updates

KEYS = np.arange(1, 1000, dtype=np.uint64)


def made(rng: np.random.Generator, clients: int, n_items: int, dim: int, dense: int, scale: float) -> Updates:
    items = [np.sort(rng.choice(n_items, rng.integers(0, n_items + 1), replace=False)) for _ in range(clients)]
    sizes = [part.size for part in items]
    return Updates(
        list(range(clients)),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate(items).astype(np.int32),
        rng.uniform(-scale, scale, (sum(sizes), dim)).astype(np.float32),
        rng.uniform(-scale, scale, (clients, dense)).astype(np.float32),
        np.zeros(clients, np.int64),
        rng.uniform(0, 2, clients).astype(np.float32),
    )


def dense_sum(updates: Updates, n_items: int) -> np.ndarray:
    total = np.zeros((n_items, updates.rows.shape[1]))
    np.add.at(total, updates.items, updates.rows.astype(np.float64))
    return total


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12))
def test_a_sum_is_exact_up_to_rounding(seed: int, clients: int, n_items: int) -> None:
    updates = made(np.random.default_rng(seed), clients, n_items, 3, 2, scale=5.0)
    sums = SumFormat(n_items, 3, 2, Bounds(20.0), clients)
    total = add_up(updates, sums, KEYS[:clients], 1, 0)
    rows, dense, _, _ = sums.scales
    np.testing.assert_allclose(total.items, dense_sum(updates, n_items), atol=clients / rows + 1e-5)
    np.testing.assert_allclose(total.dense, updates.dense.sum(0, dtype=np.float64), atol=clients / dense + 1e-5)
    assert total.touches.tolist() == np.bincount(updates.items, minlength=n_items).tolist()
    assert total.loss is not None
    assert abs(total.loss - updates.losses.mean()) < 1e-3


@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_largest_updates_do_not_wrap(seed: int, clients: int) -> None:
    rng = np.random.default_rng(seed)
    updates = made(rng, clients, 4, 1, 1, scale=1.0)
    updates = replace(updates, rows=np.full_like(updates.rows, 20.0), dense=np.full_like(updates.dense, -20 * DENSE))
    total = add_up(updates, SumFormat(4, 1, 1, Bounds(20.0), clients), KEYS[:clients], 1, 0)
    np.testing.assert_allclose(total.items[:, 0], 20.0 * total.touches, rtol=1e-5)
    np.testing.assert_allclose(total.dense, [-20.0 * DENSE * clients], rtol=1e-5)


def test_what_is_larger_than_the_bound_or_not_a_number_cannot_wrap_either() -> None:
    updates = made(np.random.default_rng(0), 2, 3, 1, 0, scale=1.0)
    updates = replace(updates, rows=np.full_like(updates.rows, 1e30))
    sums = SumFormat(3, 1, 0, Bounds(20.0), 2)
    assert (add_up(updates, sums, KEYS[:2], 1, 0).items <= 20.1 * 2).all()
    nan = replace(updates, rows=np.full_like(updates.rows, np.nan))
    assert (add_up(nan, sums, KEYS[:2], 1, 0).items == 0).all()


def test_rounding_has_no_bias() -> None:
    """Each number is far below one unit of the scale; the sum over many devices is right all the same."""
    clients = 1000
    sums = SumFormat(1, 64, 0, Bounds(20.0), 1 << 20)
    tiny = 0.1 / sums.scales[0]
    one = np.full((clients, 64), tiny, np.float32)
    ptr = np.arange(clients + 1, dtype=np.int64)
    none = np.zeros(clients, np.int64)
    updates = Updates(
        list(range(clients)), ptr, np.zeros(clients, np.int32), one, one[:, :0], none, none.astype(np.float32)
    )
    total = add_up(updates, sums, np.arange(clients, dtype=np.uint64), 1, 0)
    assert abs(total.items.mean() / (clients * tiny) - 1) < 0.05


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_sums_of_fractions(values: list[float]) -> None:
    words = sum((encode_fractions([value], len(values)) for value in values), np.zeros(1, np.uint32))
    (total,) = decode_fractions(words, len(values))
    assert abs(total - sum(values)) < 1e-6 * len(values)
