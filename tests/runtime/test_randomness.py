"""Keyed randomness: a stream is named by its key and by nothing else, and its draws are as even as they should be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fedforget
from fedforget.runtime import randomness

SEEDS = st.integers(0, 2**63 - 1)
PURPOSES = st.integers(1, 8)
ROUNDS = st.integers(0, 2**31)
USERS = st.integers(0, 2**64 - 1).map(np.uint64)
KEYS = st.tuples(SEEDS, PURPOSES, ROUNDS, USERS)

#: Known once and for all: a run folder relies on them.
KEY_OF_1 = 8727818820637439042
KEY_OF_ZOE = 9432364109485415156


def fresh(round_: int = 0) -> randomness.Stream:
    return randomness.stream(0, randomness.SYNTHETIC, round_, np.uint64(1))


def is_even(counts) -> bool:
    """Whether counts of equally likely outcomes are as even as chance makes them (chi-square, six deviations)."""
    counts = np.asarray(counts, float)
    chi = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    return chi < counts.size - 1 + 6 * np.sqrt(2 * (counts.size - 1))


def unmixed(x: int) -> int:
    """The inverse of ``mix``, in plain Python."""

    def unshifted(x: int, by: int) -> int:
        y = x
        for _ in range(64 // by):
            y = x ^ (y >> by)
        return y

    x = unshifted(x, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    x = unshifted(x, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return unshifted(x, 30)


@given(KEYS)
def test_the_same_key_gives_the_same_stream(key):
    first, second = randomness.stream(*key), randomness.stream(*key)
    assert [randomness.next_bits(first) for _ in range(5)] == [randomness.next_bits(second) for _ in range(5)]
    assert first == second


@given(KEYS, KEYS, st.integers(0, 3))
def test_any_component_of_the_key_changes_the_stream(key, other, component):
    changed = list(key)
    changed[component] = other[component]
    assume(changed[component] != key[component])
    assert randomness.key(*key) != randomness.key(*changed)
    assert randomness.next_bits(randomness.stream(*key)) != randomness.next_bits(randomness.stream(*changed))


@pytest.mark.parametrize("component", range(4))
def test_one_bit_of_a_key_turns_over_about_half_the_bits_of_the_start(component):
    turned = []
    for bit in range(31):
        key = [5, 2, 9, 77]
        start = int(randomness.key(*key[:3], np.uint64(key[3])))
        key[component] ^= 1 << bit
        turned.append((start ^ int(randomness.key(*key[:3], np.uint64(key[3])))).bit_count())
    assert 28 < np.mean(turned) < 36
    assert min(turned) > 12


def test_the_generator_is_the_published_splitmix64():
    state = np.array([1234567], np.uint64)
    drawn = [int(randomness.next_bits(state)) for _ in range(5)]
    assert drawn == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_uniform_draws_fill_the_unit_interval_evenly():
    state = fresh()
    draws = np.array([randomness.uniform(state) for _ in range(20_000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / draws.size)
    assert abs(draws.var() - 1 / 12) < 0.002
    assert is_even(np.bincount((draws * 50).astype(int), minlength=50))
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.04


def test_first_draws_of_neighbouring_keys_are_even_and_unrelated():
    users = np.arange(20_000, dtype=np.uint64)
    one, next_one = (randomness.priorities(3, randomness.COHORT, round_, users) / 2.0**64 for round_ in (1, 2))
    assert is_even(np.bincount((one * 50).astype(int), minlength=50))
    assert abs(np.corrcoef(one, next_one)[0, 1]) < 0.04
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 0.04


@given(KEYS, st.integers(1, 2**40))
def test_below_stays_in_range(key, n):
    state = randomness.stream(*key)
    assert all(0 <= randomness.below(state, n) < n for _ in range(20))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1682, 2**31 - 1, 2**31 + 11, 2**52 + 1])
def test_the_largest_and_the_smallest_draw_stay_in_range(n):
    def draw(bits: int) -> int:
        state = np.array([(unmixed(bits) - 0x9E3779B97F4A7C15) % 2**64], np.uint64)
        return randomness.below(state, n)

    assert draw(2**64 - 1) == n - 1
    assert draw(0) == 0


@pytest.mark.parametrize("n", [2, 7, 30])
def test_below_is_even(n):
    state = fresh()
    assert is_even(np.bincount([randomness.below(state, n) for _ in range(10_000)], minlength=n))


@given(KEYS, st.lists(st.integers(-50, 50), max_size=30))
def test_shuffle_gives_the_same_values_in_some_order(key, values):
    shuffled = np.array(values, np.int32)
    randomness.shuffle(randomness.stream(*key), shuffled)
    assert sorted(shuffled.tolist()) == sorted(values)


def test_shuffle_gives_every_order_equally_often():
    orders = {}
    state = fresh()
    for _ in range(6000):
        values = np.arange(4, dtype=np.int32)
        randomness.shuffle(state, values)
        orders[tuple(values)] = orders.get(tuple(values), 0) + 1
    assert len(orders) == 24
    assert is_even(list(orders.values()))


@given(KEYS, st.integers(0, 30), st.data())
def test_choose_moves_different_values_to_the_front_and_loses_none(key, size, data):
    n = data.draw(st.integers(0, size))
    values = np.arange(size, dtype=np.int32)
    randomness.choose(randomness.stream(*key), values, n)
    assert len(set(values[:n].tolist())) == n
    assert sorted(values.tolist()) == list(range(size))


def test_choose_gives_every_value_and_every_pair_equally_often():
    chosen, pairs = np.zeros(9, int), {}
    state = fresh()
    for _ in range(9000):
        values = np.arange(9, dtype=np.int32)
        randomness.choose(state, values, 2)
        chosen[values[:2]] += 1
        pairs[tuple(values[:2])] = pairs.get(tuple(values[:2]), 0) + 1
    assert is_even(chosen)
    assert len(pairs) == 72
    assert is_even(list(pairs.values()))


@pytest.mark.parametrize("size", [20_000, 20_001])
def test_normal_draws_have_mean_zero_and_the_spread_asked_for(size):
    out = np.full(size, np.nan, np.float32)
    randomness.fill_normal(fresh(), out, 0.5)
    assert np.isfinite(out).all()
    assert abs(out.mean()) < 5 * 0.5 / np.sqrt(size)
    assert abs(out.std() - 0.5) < 0.015
    assert abs(np.mean(np.abs(out) < 0.5) - 0.6827) < 0.02
    assert abs(np.mean(np.abs(out) > 1.0) - 0.0455) < 0.01
    assert abs(np.corrcoef(out[:-1], out[1:])[0, 1]) < 0.04


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
def test_an_odd_number_of_normal_draws_starts_like_the_even_one(size):
    short, long = np.full(size, np.nan, np.float32), np.full(8, np.nan, np.float32)
    randomness.fill_normal(fresh(), short, 1.0)
    randomness.fill_normal(fresh(), long, 1.0)
    assert np.array_equal(short, long[:size])


def test_each_users_normal_draws_come_from_its_own_stream():
    users = np.array([4, 2**63 + 9, 4, 0], np.uint64)
    out = np.empty((4, 5), np.float32)
    randomness.fill_normal_by_user(8, randomness.INIT_PRIVATE, users, out, 0.1)
    for user, row in zip(users, out, strict=True):
        alone = np.empty(5, np.float32)
        randomness.fill_normal(randomness.stream(8, randomness.INIT_PRIVATE, 0, user), alone, 0.1)
        assert np.array_equal(row, alone)
    assert len({row.tobytes() for row in out}) == 3


@pytest.mark.parametrize(("low", "high"), [(-0.25, 0.25), (0.0, 1.0), (3.0, 3.5)])
def test_uniform_fill_stays_in_its_bounds_and_reaches_for_both(low, high):
    out = np.full(10_000, np.nan, np.float32)
    randomness.fill_uniform(fresh(), out, low, high)
    width = high - low
    assert low <= out.min() < low + 0.01 * width
    assert high - 0.01 * width < out.max() <= high
    assert abs(out.mean() - (low + high) / 2) < 0.02 * width
    assert abs(out.std() - width / np.sqrt(12)) < 0.01 * width


@given(SEEDS, PURPOSES, ROUNDS, st.lists(USERS, max_size=10))
def test_priorities_are_the_keys_one_by_one(seed, purpose, round_, users):
    found = randomness.priorities(seed, purpose, round_, np.array(users, np.uint64))
    assert found.tolist() == [int(randomness.key(seed, purpose, round_, user)) for user in users]


@given(st.integers(0, 2**63 - 1))
def test_a_number_and_its_digits_have_different_keys(user):
    assert randomness.user_key(user) != randomness.user_key(str(user))
    assert randomness.user_key(user) == randomness.user_key(np.int64(user))


@given(st.lists(st.integers(0, 2**63 - 1) | st.text(st.characters(codec="utf-8")), unique=True))
def test_different_users_have_different_keys_of_64_bits(users):
    keys = {randomness.user_key(user) for user in users}
    assert len(keys) == len(users)
    assert all(0 <= key < 2**64 for key in keys)


def test_user_keys_are_those_that_earlier_runs_used():
    assert randomness.user_key(1) == KEY_OF_1
    assert randomness.user_key("Zoë") == KEY_OF_ZOE


def test_user_keys_do_not_depend_on_the_process_or_its_hash_seed():
    script = "from fedforget.runtime.randomness import user_key; print(user_key(1), user_key('Zo\\u00eb'))"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(Path(fedforget.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [str(KEY_OF_1), str(KEY_OF_ZOE)]
