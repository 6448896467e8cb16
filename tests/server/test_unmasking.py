"""The protocol of secure sums: the sum comes out, whoever is lost, and a single vector never does."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("shamirs", reason="secure aggregation is part of the extra fedforget[flower]")

from fedforget.device.masked import contribute, reveal
from fedforget.protocol import masking
from fedforget.protocol.masking import Contribution, KeyPair, ring_of
from fedforget.server.unmasking import SecureSum

SIZE = 50
CONTEXT = bytes(32)


class Cohort:
    """Devices with random vectors, of which some do not answer the first or the second message."""

    def __init__(self, n: int) -> None:
        self.pairs = {f"u{place}": KeyPair.new() for place in range(n)}
        self.keys = {user: pair.public for user, pair in self.pairs.items()}
        rng = np.random.default_rng(n)
        self.vectors = {user: rng.integers(0, 2**32, SIZE, dtype=np.uint32) for user in self.pairs}
        self.sum = SecureSum(CONTEXT, self.keys, SIZE)

    def contribute(self, lost: Collection[str] = (), change: dict[str, Contribution] | None = None) -> None:
        for user, pair in self.pairs.items():
            if user not in lost:
                sent = contribute(pair, CONTEXT, self.sum.ring, self.vectors[user].copy())
                assert self.sum.add(user, (change or {}).get(user, sent))

    def reveal(self, lost: Collection[str] = ()) -> None:
        for user in self.sum.arrived:
            if user not in lost:
                assert self.sum.add_revealed(user, self.answer(user))

    def answer(self, user: str) -> list[bytes]:
        around = self.sum.ring.around(self.keys[user])
        return reveal(self.pairs[user], around, self.sum.reveal_order(user, 1))

    def remaining_neighbours(self, user: str, lost: Collection[str]) -> int:
        """The number of a device's neighbours that answered both messages."""
        present = {self.keys[other] for other in self.sum.arrived if other not in lost}
        return len(present.intersection(self.sum.ring.neighbours(self.keys[user])))

    def needed(self, user: str) -> int:
        return masking.threshold(len(self.sum.ring.neighbours(self.keys[user])))

    def expected(self) -> np.ndarray:
        return np.sum([self.vectors[user] for user in self.sum.arrived], axis=0, dtype=np.uint32)


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 40), st.data())
def test_the_sum_comes_out_if_enough_devices_answer(n: int, data: st.DataObject) -> None:
    cohort = Cohort(n)
    users = list(cohort.pairs)
    first = data.draw(st.sets(st.sampled_from(users), max_size=n // 4))
    cohort.contribute(lost=first)
    assume(cohort.sum.recoverable)
    second = data.draw(st.sets(st.sampled_from(sorted(cohort.sum.arrived)), max_size=n // 5))
    cohort.reveal(lost=second)
    total = cohort.sum.total()
    if total is None:
        assert any(cohort.remaining_neighbours(user, second) < cohort.needed(user) for user in cohort.sum.arrived)
    else:
        np.testing.assert_array_equal(total, cohort.expected())


def test_lost_devices_of_either_kind() -> None:
    cohort = Cohort(9)
    cohort.contribute(lost=["u1", "u2"])
    cohort.reveal()
    np.testing.assert_array_equal(cohort.sum.total(), cohort.expected())
    cohort = Cohort(9)
    cohort.contribute()
    cohort.reveal(lost=["u3", "u4"])
    np.testing.assert_array_equal(cohort.sum.total(), cohort.expected())
    cohort = Cohort(9)
    cohort.contribute(lost=["u1"])
    cohort.reveal(lost=["u2"])  # the others have shares of the mask between u1 and u2
    np.testing.assert_array_equal(cohort.sum.total(), cohort.expected())
    cohort = Cohort(60)
    cohort.contribute(lost=[f"u{place}" for place in range(0, 60, 10)])
    cohort.reveal(lost=[f"u{place}" for place in range(1, 60, 10)])
    np.testing.assert_array_equal(cohort.sum.total(), cohort.expected())


def test_without_enough_neighbours_there_is_no_sum() -> None:
    cohort = Cohort(9)
    cohort.contribute()
    cohort.reveal(lost=["u1", "u2", "u3", "u4", "u5"])
    assert cohort.sum.total() is None
    assert cohort.sum.silent == {"u1", "u2", "u3", "u4", "u5"}
    assert cohort.sum.wrong == set()
    cohort = Cohort(9)
    cohort.contribute(lost=["u1", "u2", "u3", "u4", "u5"])
    assert not cohort.sum.recoverable


def test_a_masked_vector_tells_nothing() -> None:
    """The same vector, masked in many contexts, is uniform: its bits are fair coins and it never repeats."""
    pairs = [KeyPair.new() for _ in range(5)]
    keys = tuple(pair.public for pair in pairs)
    zeros = [
        contribute(pairs[0], context, ring_of(context, keys), np.zeros(200, np.uint32)).words
        for context in (number.to_bytes(32, "big") for number in range(50))
    ]
    bits = np.unpackbits(np.stack(zeros).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(bits.size)
    assert np.unique(np.stack(zeros)).size > 9_990


def test_the_same_context_gives_the_same_masks() -> None:
    cohort = Cohort(4)
    pair = cohort.pairs["u0"]
    ring = cohort.sum.ring
    first, again = (contribute(pair, CONTEXT, ring, np.zeros(SIZE, np.uint32)) for _ in range(2))
    np.testing.assert_array_equal(first.words, again.words)
    other = contribute(pair, b"\x01" * 32, ring, np.zeros(SIZE, np.uint32))
    assert (first.words != other.words).any()


def test_one_secret_alone_does_not_unmask_anybody() -> None:
    """With all pair seeds of a device, or with its self seed, its vector is still masked."""
    cohort = Cohort(5)
    cohort.contribute()
    user = "u0"
    masked, pair = cohort.sum.arrived[user].words, cohort.pairs[user]
    without_self, without_pairs = masked.copy(), masked.copy()
    masking.add_mask(without_self, pair.self_seed(CONTEXT), -1)
    for other in cohort.sum.ring.neighbours(pair.public):
        masking.add_mask(without_pairs, pair.pair_secrets(other, CONTEXT)[0], -masking.sign_of(pair.public, other))
    for seen in (without_self, without_pairs):
        assert (seen != cohort.vectors[user]).mean() > 0.9


def test_fewer_shares_than_the_threshold_do_not_give_the_seed() -> None:
    seed = bytes(range(16))
    shares = list(enumerate(masking.split(seed, 9), start=1))
    assert masking.threshold(9) == 5
    assert masking.join(shares[:5]) == masking.join(shares[4:]) == seed
    assert masking.join(shares[:4]) != seed


@pytest.mark.parametrize("part", ["shares", "checks"])
def test_a_device_with_wrong_shares_is_found(part: str) -> None:
    cohort = Cohort(7)
    sent = contribute(cohort.pairs["u3"], CONTEXT, cohort.sum.ring, cohort.vectors["u3"].copy())
    wrong = replace(sent, **{part: [bytes(len(each)) for each in getattr(sent, part)]})
    cohort.contribute(change={"u3": wrong})
    cohort.reveal()
    assert cohort.sum.total() is None
    assert cohort.sum.wrong == {"u3"}
    assert cohort.sum.silent == set()


def test_wrong_answers_to_the_second_message_are_recognised() -> None:
    cohort = Cohort(9)
    cohort.contribute(lost=["u1"])
    cohort.reveal(lost=["u2", "u3"])
    assert not cohort.sum.add_revealed("u2", [bytes(len(each)) for each in cohort.answer("u2")])  # a wrong pair seed
    assert not cohort.sum.add_revealed("u3", cohort.answer("u3")[:-1])
    assert cohort.sum.silent == {"u2", "u3"}


def test_contributions_of_a_wrong_size_do_not_fit() -> None:
    cohort = Cohort(4)
    sent = contribute(cohort.pairs["u0"], CONTEXT, cohort.sum.ring, cohort.vectors["u0"].copy())
    for wrong in (
        replace(sent, words=sent.words[:-1]),
        replace(sent, shares=sent.shares[:-1]),
        replace(sent, shares=[share[:-1] for share in sent.shares]),
        replace(sent, checks=sent.checks[:-1]),
    ):
        assert not cohort.sum.add("u0", wrong)


def test_neighbours_are_mutual_and_few_and_known_around_each_device() -> None:
    for n in (3, 25, 26, 49, 50, 200):
        keys = tuple(KeyPair.new().public for _ in range(n))
        ring = ring_of(CONTEXT, keys)
        near = {key: ring.neighbours(key) for key in keys}
        assert {len(set(each)) for each in near.values()} == {min(n - 1, masking.NEIGHBOURS)}
        assert all(key in near[other] for key in keys for other in near[key])
        assert all(key not in near[key] for key in keys)
        for key in keys:
            around = ring.around(key)
            assert all(around.neighbours(other) == near[other] for other in (key, *near[key]))
