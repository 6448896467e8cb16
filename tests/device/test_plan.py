"""Plans: what must hold of any draw, and that the draw_bits which a draw leaves behind lead to the same plan again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.device import plan as plan_module
from fedforget.device.plan import Plan, draw_plan, redraw_plan
from fedforget.device.sampling import candidate_pool
from fedforget.protocol.sampler import SAMPLERS, Sampler
from fedforget.runtime import randomness
from fedforget.runtime.workers import Workers
from tests.samplers import make_sampler

ONE, TWO = Workers(1), Workers(2)
PERCENTS = st.integers(1, 100).map(float) | st.sampled_from([0.5, 12.5, 99.5])


@dataclass(frozen=True)
class Cohort:
    """Clients with their own items and vectors, ready to be planned for, together or in part."""

    own: list[list[int]]
    items: np.ndarray
    users: np.ndarray
    keys: np.ndarray

    def plan(self, sampler, negatives=1, pairwise=False, rounds=1, workers=ONE, only=None) -> Plan:
        chosen = list(range(len(self.own))) if only is None else only
        return draw_plan(
            sampler,
            negatives=negatives,
            pairwise=pairwise,
            items=self.items,
            users=self.users[chosen],
            rounds=rounds,
            workers=workers,
            **self.named(chosen),
        )

    def again(self, plan: Plan, sampler, negatives=1, pairwise=False, rounds=1, workers=ONE):
        """The plan of all clients from the draw_bits of another."""
        return redraw_plan(
            sampler,
            negatives=negatives,
            pairwise=pairwise,
            n_items=np.full(len(self.own), self.items.shape[0]),
            rounds=rounds,
            bit_ptr=plan.bit_ptr,
            draw_bits=plan.draw_bits,
            workers=workers,
            **self.named(list(range(len(self.own)))),
        )

    def named(self, chosen: list[int]) -> dict:
        sizes = [len(self.own[client]) for client in chosen]
        return {
            "own_ptr": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            "own_items": np.array([item for client in chosen for item in self.own[client]], np.int32),
            "user_keys": self.keys[chosen],
            "seed": 3,
        }

    def pool(self, client: int, sampler: Sampler) -> list[int]:
        own = np.array(self.own[client], np.int32)
        return candidate_pool(sampler, self.items, self.users[client], own).tolist()

    @classmethod
    def of(cls, own: list[list[int]], n_items: int, dim: int = 3) -> Cohort:
        rng = np.random.default_rng(n_items)
        return cls(
            own,
            rng.normal(size=(n_items, dim)).astype(np.float32),
            rng.normal(size=(len(own), dim)).astype(np.float32),
            np.arange(100, 100 + len(own), dtype=np.uint64),
        )


ANY_SAMPLER = st.builds(make_sampler, st.sampled_from(list(SAMPLERS)), PERCENTS, st.sampled_from([0.01, 0.3, 0.5, 1.0]))


@st.composite
def cohorts(draw) -> Cohort:
    n_items = draw(st.integers(1, 16))
    own = st.sets(st.integers(0, n_items - 1), min_size=1).map(sorted)
    return Cohort.of(draw(st.lists(own, max_size=5)), n_items)


def client_parts(plan: Plan, client: int) -> tuple:
    left, right = plan.client_samples(client)
    return (
        plan.client_items(client).tolist(),
        int(plan.positives[client]),
        left.tolist(),
        right.tolist(),
        int(plan.batch_keys[client]),
        walk(plan, client),
    )


def walk(plan: Plan, client: int) -> bytes:
    return plan.draw_bits[plan.bit_ptr[client] : plan.bit_ptr[client + 1]].tobytes()


@given(cohorts(), ANY_SAMPLER, st.integers(1, 5))
def test_rows_are_the_own_items_and_then_different_negatives_from_the_pool(cohort, sampler, negatives):
    plan = cohort.plan(sampler, negatives)
    assert len(plan) == len(cohort.own)
    for client, own in enumerate(cohort.own):
        rows = plan.client_items(client).tolist()
        pool = cohort.pool(client, sampler)
        wanted = sampler.count(negatives, len(own))
        assert plan.positives[client] == len(own)
        assert rows[: len(own)] == own
        drawn = rows[len(own) :]
        assert len(set(drawn)) == len(drawn)
        assert set(drawn) <= set(pool)
        assert not set(drawn) & set(own)
        if len(pool) >= wanted:
            assert len(drawn) == wanted
        else:
            assert min(1, len(pool)) <= len(drawn) <= len(pool)


@given(cohorts(), ANY_SAMPLER, st.integers(1, 5))
def test_single_samples_are_each_positive_once_and_as_many_negatives_as_asked_for(cohort, sampler, negatives):
    plan = cohort.plan(sampler, negatives)
    for client, own in enumerate(cohort.own):
        rows = plan.client_items(client)
        left, right = plan.client_samples(client)
        assert (right == -1).all()
        assert left[: len(own)].tolist() == list(range(len(own)))
        draws = left[len(own) :]
        assert not set(rows[draws].tolist()) & set(own)
        assert set(draws.tolist()) == set(range(len(own), rows.size))
        untouched = cohort.items.shape[0] - len(own)
        assert draws.size == (sampler.count(negatives, len(own)) if untouched else 0)


@given(cohorts(), ANY_SAMPLER, st.integers(1, 5))
def test_pairs_set_an_own_item_against_another_until_all_are_used(cohort, sampler, negatives):
    single, paired = (cohort.plan(sampler, negatives, pairwise) for pairwise in (False, True))
    assert np.array_equal(single.items, paired.items)
    for client, own in enumerate(cohort.own):
        rows = paired.client_items(client)
        left, right = paired.client_samples(client)
        draws = single.client_samples(client)[0][len(own) :]
        if draws.size == 0:
            assert left.size == right.size == 0
            continue
        assert left.size == right.size == max(len(own), draws.size)
        assert set(rows[left].tolist()) == set(own)
        assert not set(rows[right].tolist()) & set(own)
        assert set(right.tolist()) == set(draws.tolist())
        # Both sides go round, so that uses differ by one at most.
        uses = Counter(left.tolist())
        assert max(uses.values()) - min(uses.values()) <= 1
        assert Counter(right.tolist()) == Counter(draws[np.arange(right.size) % draws.size].tolist())


@given(cohorts(), ANY_SAMPLER, st.booleans(), st.data())
def test_a_client_draws_the_same_alone_in_any_company_and_on_any_number_of_workers(cohort, sampler, pairwise, data):
    together = cohort.plan(sampler, 4, pairwise)
    shared = cohort.plan(sampler, 4, pairwise, workers=TWO)
    order = data.draw(st.permutations(range(len(cohort.own))))
    mixed = cohort.plan(sampler, 4, pairwise, only=order)
    for place, client in enumerate(order):
        expected = client_parts(together, client)
        assert client_parts(shared, client) == expected
        assert client_parts(mixed, place) == expected
        assert client_parts(cohort.plan(sampler, 4, pairwise, only=[client]), 0) == expected


def test_a_pool_that_is_too_small_repeats_draws_but_not_rows():
    plan = Cohort.of([list(range(7))], 10).plan(make_sampler("random", beta=1.0), negatives=4)
    rows = plan.client_items(0)
    left, _ = plan.client_samples(0)
    assert sorted(rows.tolist()) == list(range(10))
    assert left.size == 7 + 28
    assert set(rows[left[7:]].tolist()) == {7, 8, 9}


def test_a_user_who_touched_everything_trains_on_positives_alone():
    cohort = Cohort.of([[0, 1, 2], [0]], 3)
    plan = cohort.plan(make_sampler("mixed"), negatives=4)
    assert client_parts(plan, 0)[:4] == ([0, 1, 2], 3, [0, 1, 2], [-1, -1, -1])
    assert plan.client_items(1).size > 1
    pairs = cohort.plan(make_sampler("mixed"), negatives=4, pairwise=True)
    assert client_parts(pairs, 0)[:4] == ([0, 1, 2], 3, [], [])
    assert pairs.client_samples(1)[0].size > 0


def test_an_empty_cohort_has_an_empty_plan():
    plan = Cohort.of([], 5).plan(make_sampler(), workers=TWO)
    assert len(plan) == plan.items.size == plan.left.size == plan.batch_keys.size == 0
    assert plan.item_ptr.tolist() == plan.sample_ptr.tolist() == plan.bit_ptr.tolist() == [0]
    assert plan.draw_bits.size == 0


def test_another_round_or_another_user_draws_otherwise():
    cohort = Cohort.of([[0, 1, 2, 3]] * 2, 200)
    sampler = make_sampler("random", beta=1.0)
    plans = [cohort.plan(sampler, 4, rounds=round_) for round_ in (1, 2)]
    drawn = [tuple(plan.client_items(client)[4:].tolist()) for plan in plans for client in (0, 1)]
    assert len(set(drawn)) == 4
    assert len({int(key) for plan in plans for key in plan.batch_keys}) == 4


@pytest.mark.parametrize(("kind", "negatives"), [("random", 2), ("mixed", 1), ("random", 60)])
def test_draws_are_even_over_the_pool(kind, negatives):
    """Many users with the same vectors and items, so the same pool; 60 negatives are more than it holds."""
    n_users = 3000 if negatives < 60 else 60
    cohort = Cohort.of([[2, 9, 10]] * n_users, 30)
    cohort.users[:] = cohort.users[0]
    plan = cohort.plan(make_sampler(kind, 25.0, 1.0), negatives)
    pool = cohort.pool(0, make_sampler(kind, 25.0))
    drawn = np.concatenate([plan.client_items(c)[plan.client_samples(c)[0][3:]] for c in range(n_users)])
    counts = np.bincount(drawn, minlength=30)
    assert sorted(np.flatnonzero(counts).tolist()) == pool
    expected = drawn.size / len(pool)
    assert (np.abs(counts[pool] - expected) < 5 * np.sqrt(expected)).all()


def same(a: Plan, b: Plan) -> bool:
    """Whether two plans are equal bit for bit, types included."""
    pairs = [(getattr(a, part.name), getattr(b, part.name)) for part in fields(Plan)]
    return all(left.dtype == right.dtype and left.tobytes() == right.tobytes() for left, right in pairs)


def plain_walk(cohort: Cohort, client: int, sampler: Sampler, wanted: int) -> tuple[list[int], list[int]]:
    """The draws and the bits of a first-round walk, written out with lists."""
    state = randomness.stream(3, randomness.NEGATIVES, 1, cohort.keys[client])
    pool, deck, taken, bits = set(cohort.pool(client, sampler)), list(range(cohort.items.shape[0])), [], []
    for i in range(len(deck)):
        if len(taken) == wanted:
            break
        j = i + randomness.below(state, len(deck) - i)
        deck[i], deck[j] = deck[j], deck[i]
        if deck[i] not in cohort.own[client]:
            bits.append(int(deck[i] in pool))
            taken += [deck[i]] * bits[-1]
    if 0 < len(taken) < wanted:
        taken = [taken[randomness.below(state, len(pool))] for _ in range(wanted)]
    return taken, bits


@given(cohorts(), ANY_SAMPLER, st.integers(1, 5))
def test_a_walk_is_that_of_the_definition(cohort, sampler, negatives):
    plan = cohort.plan(sampler, negatives)
    for client, own in enumerate(cohort.own):
        draws, bits = plain_walk(cohort, client, sampler, sampler.count(negatives, len(own)))
        left, _ = plan.client_samples(client)
        assert plan.client_items(client)[left[len(own) :]].tolist() == draws
        assert walk(plan, client) == np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes()


@given(cohorts(), ANY_SAMPLER, st.integers(1, 5), st.booleans(), st.sampled_from([ONE, TWO]))
def test_walks_lead_to_the_same_plan_again(cohort, sampler, negatives, pairwise, workers):
    plan = cohort.plan(sampler, negatives, pairwise, rounds=7)
    again, sound = cohort.again(plan, sampler, negatives, pairwise, rounds=7, workers=workers)
    assert same(again, plan)
    assert sound.all()
    assert sound.shape == (len(plan),)


def large_cohort() -> Cohort:
    rng = np.random.default_rng(8)
    return Cohort.of([sorted(rng.permutation(300)[: rng.integers(1, 200)].tolist()) for _ in range(40)], 300, 8)


@pytest.mark.parametrize("kind", list(SAMPLERS))
def test_shared_out_or_not_a_larger_cohort_is_redrawn_as_it_was(kind, monkeypatch):
    cohort, sampler = large_cohort(), make_sampler(kind, 40.0)
    plan = cohort.plan(sampler, 2)
    for workers in (ONE, TWO, Workers(3)):
        assert same(cohort.plan(sampler, 2, workers=workers), plan)
        for threshold in (10**6, 0):
            monkeypatch.setattr(plan_module, "WORTH_SHARING", threshold)
            again, sound = cohort.again(plan, sampler, 2, workers=workers)
            assert sound.all()
            assert same(again, plan)


@pytest.mark.parametrize(("kind", "R"), [("random", 50.0), ("user", 75.0), ("item", 50.0), ("mixed", 60.0)])
def test_a_negative_costs_one_bit_for_each_item_looked_at(kind, R):
    """One in p of the untouched items is in the pool, so 1 / p bits are expected, and up to a byte is filled up."""
    cohort, sampler = Cohort.of([list(range(0, 2000, 10))] * 30, 2000), make_sampler(kind, R)
    plan = cohort.plan(sampler, 2)
    drawn = plan.items.size - plan.positives.sum()
    p = np.mean([len(cohort.pool(client, sampler)) / 1800 for client in range(30)])
    assert drawn == 30 * 200
    assert 8 * plan.draw_bits.size / drawn == pytest.approx(1 / p, rel=0.05)


def damaged(plan: Plan, client: int, bits: bytes) -> Plan:
    """The plan with another walk for one client."""
    parts = [walk(plan, other) if other != client else bits for other in range(len(plan))]
    ptr = np.cumsum([0, *(len(part) for part in parts)])
    return replace(plan, bit_ptr=ptr, draw_bits=np.frombuffer(b"".join(parts), np.uint8))


def check_only_this_client_is_without(cohort: Cohort, plan: Plan, client: int, again: Plan, sound) -> None:
    assert sound.tolist() == [other != client for other in range(len(plan))]
    for other in range(len(plan)):
        if other != client:
            assert client_parts(again, other) == client_parts(plan, other)
    own = cohort.own[client]
    assert client_parts(again, client)[:4] == (own, len(own), list(range(len(own))), [-1] * len(own))
    assert walk(again, client) == b""


@given(st.sampled_from(list(SAMPLERS)), st.integers(0, 3), st.data())
def test_a_walk_that_is_cut_or_goes_on_is_noticed(kind, client, data):
    cohort, sampler = Cohort.of([[1, 2, 3], [0, 4, 9, 30], [5], list(range(35))], 40), make_sampler(kind, 30.0)
    plan = cohort.plan(sampler, 3)
    bits = walk(plan, client)
    cut = st.integers(0, len(bits) - 1).map(lambda size: bits[:size])
    longer = st.binary(min_size=1, max_size=9).map(lambda more: bits + more)
    broken = damaged(plan, client, data.draw(cut | longer))
    check_only_this_client_is_without(cohort, plan, client, *cohort.again(broken, sampler, 3))


@given(st.sampled_from(list(SAMPLERS)), st.integers(0, 2), st.data())
def test_any_one_flipped_bit_is_noticed_unless_the_pool_was_used_up(kind, client, data):
    """A one that is lost leaves the walk without its last one; one that is won ends it before the last."""
    cohort, sampler = Cohort.of([[1, 2, 3], [0, 4, 9, 30], [5]], 40), make_sampler(kind, 40.0)
    plan = cohort.plan(sampler, 3)
    bits = bytearray(walk(plan, client))
    flipped = data.draw(st.integers(0, 8 * len(bits) - 1))
    bits[flipped // 8] ^= 1 << flipped % 8
    broken = damaged(plan, client, bytes(bits))
    check_only_this_client_is_without(cohort, plan, client, *cohort.again(broken, sampler, 3))


@pytest.mark.parametrize("kind", ["random", "mixed"])
def test_a_walk_with_bits_after_its_end_or_with_too_many_zeros_is_noticed(kind):
    cohort, sampler = Cohort.of([[1, 2, 3], [0, 4, 9], [5, 6, 7]], 40), make_sampler(kind, 90.0, 1.0)
    plan = cohort.plan(sampler, 1)
    bits = walk(plan, 1)
    after = bits[:-1] + bytes([bits[-1] | 0x80])
    for broken in (after, bytes(5), bytes(4) + b"\x1f"):
        check_only_this_client_is_without(cohort, plan, 1, *cohort.again(damaged(plan, 1, broken), sampler, 1))


@given(cohorts(), ANY_SAMPLER, st.booleans(), st.data())
def test_any_bytes_and_pointers_give_a_plan_within_bounds(cohort, sampler, pairwise, data):
    n = len(cohort.own)
    draw_bits = np.frombuffer(data.draw(st.binary(max_size=12)), np.uint8)
    pointers = st.integers(-20, 20) | st.integers(-(2**62), 2**62)
    ptr = np.array(data.draw(st.lists(pointers, min_size=n + 1, max_size=n + 1)), np.int64)
    broken = replace(cohort.plan(sampler, 3, pairwise), bit_ptr=ptr, draw_bits=draw_bits)
    again, sound = cohort.again(broken, sampler, 3, pairwise)
    for client, own in enumerate(cohort.own):
        rows, (left, right) = again.client_items(client), again.client_samples(client)
        assert rows[: len(own)].tolist() == own
        assert len(set(rows.tolist())) == rows.size
        assert ((rows >= 0) & (rows < cohort.items.shape[0])).all()
        assert (rows.size > len(own)) == bool(sound[client] and len(own) < cohort.items.shape[0])
        assert ((left >= 0) & (left < rows.size) & (right >= -1) & (right < rows.size)).all()
        assert walk(again, client) == (draw_bits[ptr[client] : ptr[client + 1]].tobytes() if sound[client] else b"")


def test_the_walk_of_a_model_that_diverged_leads_to_the_same_plan_too():
    cohort = large_cohort()
    cohort.items[7] = np.nan
    cohort.users[3] = np.inf
    plan = cohort.plan(make_sampler())
    again, sound = cohort.again(plan, make_sampler())
    assert sound.all()
    assert same(again, plan)
