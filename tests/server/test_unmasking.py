"""The protocol of secure sums: the sum comes out, whoever is lost, and a single vector never does."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("Crypto", reason="secure aggregation is part of the extra fedforget[flower]")

from fedforget.device.masked import contribute, reveal
from fedforget.protocol import masking
from fedforget.protocol.masking import Contribution, Graph, KeyPair
from fedforget.server.unmasking import SecureSum

SIZE = 50


class Cohort:
    """Devices with random vectors, of which some do not answer the first or the second message."""

    def __init__(self, n: int) -> None:
        self.pairs = {f"u{place}": KeyPair.new() for place in range(n)}
        self.keys = {user: pair.public for user, pair in self.pairs.items()}
        self.graph = Graph(bytes(32), tuple(self.keys.values()))
        rng = np.random.default_rng(n)
        self.vectors = {user: rng.integers(0, 2**32, SIZE, dtype=np.uint32) for user in self.pairs}
        self.sum = SecureSum(self.graph, self.keys, SIZE)

    def contribute(self, lost: Collection[str] = (), change: dict[str, Contribution] | None = None) -> None:
        for user, pair in self.pairs.items():
            if user not in lost:
                sent = contribute(pair, self.graph, self.vectors[user].copy())
                assert self.sum.add(user, (change or {}).get(user, sent))

    def reveal(self, lost: Collection[str] = ()) -> None:
        for user in self.sum.arrived:
            if user not in lost:
                assert self.sum.add_revealed(user, self.answer(user))

    def answer(self, user: str) -> list[bytes]:
        order = self.sum.reveal_order(user, 1)
        neighbours = self.graph.neighbours(self.keys[user])
        return reveal(self.pairs[user], self.graph.context, neighbours, order.shares)

    def expected(self) -> np.ndarray:
        return np.sum([self.vectors[user] for user in self.sum.arrived], axis=0, dtype=np.uint32)


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 40), st.data())
def test_the_sum_comes_out_if_enough_devices_answer(n: int, data: st.DataObject) -> None:
    cohort = Cohort(n)
    users = list(cohort.pairs)
    first = data.draw(st.sets(st.sampled_from(users), max_size=n // 4))
    cohort.contribute(lost=first)
    second = set() if first else data.draw(st.sets(st.sampled_from(users), max_size=n // 4))
    if not cohort.sum.recoverable:
        return
    cohort.reveal(lost=second)
    total = cohort.sum.total()
    if total is None:  # too few neighbours of somebody are left
        assert second
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
    cohort.reveal(lost=["u2"])  # nobody else knows the mask between u1 and u2
    assert cohort.sum.total() is None
    assert cohort.sum.lost == {"u2"}


def test_a_masked_vector_tells_nothing() -> None:
    """The same vector, masked in many contexts, is uniform: its bits are fair coins and it never repeats."""
    pairs = [KeyPair.new() for _ in range(5)]
    keys = tuple(pair.public for pair in pairs)
    zeros = [
        contribute(pairs[0], Graph(number.to_bytes(32, "big"), keys), np.zeros(200, np.uint32)).words
        for number in range(50)
    ]
    bits = np.unpackbits(np.stack(zeros).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(bits.size)
    assert np.unique(np.stack(zeros)).size > 9_990


def test_the_same_context_gives_the_same_masks() -> None:
    cohort = Cohort(4)
    pair = cohort.pairs["u0"]
    first, again = (contribute(pair, cohort.graph, np.zeros(SIZE, np.uint32)) for _ in range(2))
    np.testing.assert_array_equal(first.words, again.words)
    other = contribute(pair, Graph(b"\x01" * 32, cohort.graph.keys), np.zeros(SIZE, np.uint32))
    assert (first.words != other.words).any()


def test_one_secret_alone_does_not_unmask_anybody() -> None:
    """With all pair seeds of a device, or with its self seed, its vector is still masked."""
    cohort = Cohort(5)
    cohort.contribute()
    user, context = "u0", cohort.graph.context
    masked, pair = cohort.sum.arrived[user].words, cohort.pairs[user]
    without_self, without_pairs = masked.copy(), masked.copy()
    masking.add_mask(without_self, pair.self_seed(context), -1)
    for other in cohort.graph.neighbours(pair.public):
        masking.add_mask(without_pairs, pair.pair_secrets(other, context)[0], -masking.sign_of(pair.public, other))
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
    sent = contribute(cohort.pairs["u3"], cohort.graph, cohort.vectors["u3"].copy())
    wrong = replace(sent, **{part: [bytes(len(each)) for each in getattr(sent, part)]})
    cohort.contribute(change={"u3": wrong})
    cohort.reveal()
    assert cohort.sum.total() is None
    assert cohort.sum.lost == {"u3"}


def test_wrong_answers_to_the_second_message_are_recognised() -> None:
    cohort = Cohort(9)
    cohort.contribute(lost=["u1"])
    cohort.reveal(lost=["u2", "u3"])
    assert not cohort.sum.add_revealed("u2", [bytes(len(each)) for each in cohort.answer("u2")])  # a wrong pair seed
    assert not cohort.sum.add_revealed("u3", cohort.answer("u3")[:-1])
    assert cohort.sum.lost == {"u2", "u3"}


def test_contributions_of_a_wrong_size_do_not_fit() -> None:
    cohort = Cohort(4)
    sent = contribute(cohort.pairs["u0"], cohort.graph, cohort.vectors["u0"].copy())
    for wrong in (
        replace(sent, words=sent.words[:-1]),
        replace(sent, shares=sent.shares[:-1]),
        replace(sent, shares=[share[:-1] for share in sent.shares]),
        replace(sent, checks=sent.checks[:-1]),
    ):
        assert not cohort.sum.add("u0", wrong)


def test_the_graph_is_symmetric_and_sparse() -> None:
    for n in (3, 25, 26, 200):
        keys = tuple(KeyPair.new().public for _ in range(n))
        graph = Graph(bytes(32), keys)
        near = {key: graph.neighbours(key) for key in keys}
        assert {len(set(each)) for each in near.values()} == {min(n - 1, masking.NEIGHBOURS)}
        assert all(key in near[other] for key in keys for other in near[key])
        assert all(key not in near[key] for key in keys)
