"""Both ranking protocols: by hand on cases that fit on a line, and against sorted lists on any other."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.data import Interactions
from fedforget.errors import ConfigError, DataError, FedForgetError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.evaluation.candidates import draw_candidates
from fedforget.evaluation.ranking import full_metrics, sampled_metrics
from fedforget.runtime.workers import Workers

ONE, TWO = Workers(1), Workers(2)


def items(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def floats(values) -> np.ndarray:
    return np.array(values, np.float32)


def split(train: dict, test: dict, n_items: int) -> tuple[Interactions, Interactions]:
    """Both parts of a split, written down as the items of each user."""
    user_ids = np.array(sorted(train))
    parts = []
    for part in (train, test):
        rows = [sorted(part.get(user, [])) for user in user_ids.tolist()]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        indices = np.array([item for row in rows for item in row], np.int32)
        parts.append(Interactions(user_ids.copy(), np.arange(n_items), indptr, indices))
    return parts[0], parts[1]


def gain(rank: int) -> float:
    return 1 / log2(rank + 1)


# The sampled protocol, by hand.


@pytest.mark.parametrize(
    ("scores", "rank"),
    [
        ([9, 5, 4, 3, 2], 1),
        ([4.5, 5, 4, 3, 2], 2),
        ([1, 5, 4, 3, 2], 5),
        ([5, 5, 4, 3, 2], 2),  # one tie: behind it
        ([4, 4, 4, 4, 2], 4),  # three ties: behind all of them
        ([7, 7, 7, 7, 7], 5),  # all equal: last
    ],
)
def test_a_test_item_ranks_behind_those_that_score_as_much(scores, rank):
    for k in (1, 3, 4, 5, 9):
        hit, ndcg = sampled_metrics(floats(scores), items(0), items(1, 2, 3, 4)[None], k)
        assert hit == (1.0 if rank <= k else 0.0)
        assert ndcg == pytest.approx(gain(rank) if rank <= k else 0.0)


def test_sampled_metrics_are_the_mean_over_a_users_test_items_each_with_its_own_candidates():
    scores = floats([5, 3, 1, 4, 2, 0])
    drawn = np.array([[3, 4], [3, 4], [5, 4]], np.int32)
    hit, ndcg = sampled_metrics(scores, items(0, 1, 2), drawn, 1)
    assert hit == pytest.approx(1 / 3)
    hit, ndcg = sampled_metrics(scores, items(0, 1, 2), drawn, 2)
    assert hit == 1.0
    assert ndcg == pytest.approx((gain(1) + gain(2) + gain(2)) / 3)


def test_a_test_item_is_not_ranked_against_the_users_other_test_items():
    assert sampled_metrics(floats([9, 8, 7, 0]), items(0, 1, 2), items(3, 3, 3)[:, None], 1) == (1.0, 1.0)


# The full protocol, by hand.


def test_full_metrics_rank_all_items_but_the_training_items():
    scores = floats([9, 8, 7, 6, 5])
    assert full_metrics(scores, items(0), items(1), 1) == (1.0, 1.0, 1.0)
    assert full_metrics(scores, items(), items(1), 1) == (0.0, 0.0, 0.0)
    assert full_metrics(scores, items(), items(1), 2) == (1.0, pytest.approx(gain(2)), 1.0)
    assert full_metrics(scores, items(0, 1, 2, 3), items(4), 1) == (1.0, 1.0, 1.0)


def test_full_metrics_of_several_test_items_share_one_list():
    scores = floats([9, 8, 7, 6, 5, 4])
    hit, ndcg, recall = full_metrics(scores, items(), items(0, 2, 5), 4)
    assert (hit, recall) == (1.0, pytest.approx(2 / 3))
    assert ndcg == pytest.approx((gain(1) + gain(3)) / (gain(1) + gain(2) + gain(3)))


def test_with_more_test_items_than_places_the_best_list_still_has_ndcg_one():
    scores = floats([9, 8, 7, 6, 5])
    hit, ndcg, recall = full_metrics(scores, items(4), items(0, 1, 2, 3), 2)
    assert (hit, recall) == (1.0, 0.5)
    assert ndcg == pytest.approx(1.0)


def test_when_all_scores_are_equal_nothing_is_found_unless_the_list_holds_everything():
    scores = floats([3] * 6)
    assert full_metrics(scores, items(0), items(1, 2), 4) == (0.0, 0.0, 0.0)
    hit, ndcg, recall = full_metrics(scores, items(0), items(1, 2), 5)
    assert (hit, recall) == (1.0, 1.0)
    assert ndcg == pytest.approx(2 * gain(5) / (gain(1) + gain(2)))


def test_a_training_item_with_the_same_score_does_not_push_a_test_item_back():
    assert full_metrics(floats([3, 3, 1]), items(0), items(1), 1) == (1.0, 1.0, 1.0)
    assert full_metrics(floats([3, 3, 1]), items(2), items(1), 1) == (0.0, 0.0, 0.0)


# Candidates.


@given(
    st.sets(st.integers(0, 29)), st.integers(0, 4), st.integers(1, 40), st.integers(0, 50), st.integers(0, 2**64 - 1)
)
def test_candidates_are_different_untouched_items_fixed_by_seed_and_user(touched, n_tests, per_test, seed, user):
    def draw(seed: int, user: int) -> np.ndarray:
        return draw_candidates(30, items(*sorted(touched)), n_tests, per_test, seed, np.uint64(user))

    drawn = draw(seed, user)
    assert drawn.shape == (n_tests, min(per_test, 30 - len(touched)))
    for row in drawn.tolist():
        assert len(set(row)) == len(row)
        assert not set(row) & touched
        assert all(0 <= item < 30 for item in row)
    assert np.array_equal(draw(seed, user), drawn)


def test_another_seed_another_user_and_another_test_item_have_other_candidates():
    def draw(seed: int, user: int) -> np.ndarray:
        return draw_candidates(500, items(1, 2), 2, 99, seed, np.uint64(user))

    drawn = [frozenset(row.tolist()) for row in (*draw(0, 1), *draw(1, 1), *draw(0, 2))]
    assert len(set(drawn)) == 6


def test_every_untouched_item_is_a_candidate_equally_often():
    drawn = draw_candidates(40, items(*range(10)), 3000, 5, 0, np.uint64(7))
    counts = np.bincount(drawn.ravel(), minlength=40)
    assert not counts[:10].any()
    assert (np.abs(counts[10:] - 500) < 5 * np.sqrt(500)).all()


# Against a plain implementation.


def plain_rank(score: float, others: list[float]) -> int:
    """The place of a score in the sorted list of all, behind its equals."""
    return sorted([score, *others], reverse=True).index(score) + others.count(score) + 1


def plain_evaluation(score: Callable, train: Interactions, test: Interactions, ranking: Ranking) -> dict:
    """Every user's five metrics from sorted lists."""
    found = {}
    for user, name in enumerate(train.user_ids.tolist()):
        own, wanted = set(train.items_of(user).tolist()), test.items_of(user).tolist()
        if not wanted:
            continue
        scores = score(user).tolist()
        touched = np.array(sorted({*own, *wanted}), np.int32)
        key = train.user_keys[user]
        drawn = draw_candidates(train.n_items, touched, len(wanted), ranking.candidates, ranking.seed, key).tolist()
        sampled = [
            plain_rank(scores[item], [scores[other] for other in against])
            for item, against in zip(wanted, drawn, strict=True)
        ]
        listed = [item for item in range(train.n_items) if item not in own]
        full = [plain_rank(scores[item], [scores[other] for other in listed if other != item]) for item in wanted]
        sampled_hits, full_hits = ([rank for rank in ranks if rank <= ranking.k] for ranks in (sampled, full))
        best = sum(gain(rank) for rank in range(1, min(len(wanted), ranking.k) + 1))
        found[name] = (
            len(sampled_hits) / len(wanted),
            sum(map(gain, sampled_hits)) / len(wanted),
            float(bool(full_hits)),
            sum(map(gain, full_hits)) / best,
            len(full_hits) / len(wanted),
        )
    return found


@st.composite
def evaluations(draw):
    """A split of a few users over a few items, and scores with many ties."""
    n_users, n_items = draw(st.integers(1, 5)), draw(st.integers(1, 25))
    users = draw(st.lists(st.integers(0, 1000), min_size=n_users, max_size=n_users, unique=True))
    train, test = {}, {}
    for user in users:
        parts = draw(st.lists(st.sampled_from(["train", "test", "none"]), min_size=n_items, max_size=n_items))
        train[user] = [item for item, part in enumerate(parts) if part == "train"]
        test[user] = [item for item, part in enumerate(parts) if part == "test"]
    number = st.integers(-3, 3) if draw(st.booleans()) else st.floats(-9, 9, width=32)
    cells = n_users * n_items
    scores = floats(draw(st.lists(number, min_size=cells, max_size=cells))).reshape(n_users, n_items)
    return (*split(train, test, n_items), scores)


@given(evaluations(), st.integers(1, 12), st.integers(1, 20), st.integers(0, 5))
def test_an_evaluation_is_that_of_sorted_lists(case, k, candidates, seed):
    train, test, scores = case
    ranking = Ranking(k, candidates, seed)
    expected = plain_evaluation(lambda user: scores[user], train, test, ranking)
    if not expected:
        with pytest.raises(DataError, match="no interactions"):
            evaluate(lambda user: scores[user], train, test, ranking, ONE)
        return
    found = evaluate(lambda user: scores[user], train, test, ranking, TWO)
    assert found.users.tolist() == list(expected)
    metrics = np.concatenate([found.per_user_sampled, found.per_user_full], axis=1)
    assert np.allclose(metrics, list(expected.values()), atol=1e-12)
    means = np.mean(list(expected.values()), axis=0)
    assert list(found.sampled.values()) == pytest.approx(means[:2])
    assert list(found.full.values()) == pytest.approx(means[2:])
    assert found.k == k


# Whole evaluations.

TRAIN, TEST = split({1: [0, 1], 2: [2], 3: [5, 6, 7], 8: [9]}, {1: [2, 3], 2: [0], 3: [], 8: [10, 11, 12]}, n_items=150)


def scorer(wanted: float, others: float) -> Callable[[int], np.ndarray]:
    def score(user: int) -> np.ndarray:
        scores = np.full(TRAIN.n_items, others, np.float32)
        scores[TEST.items_of(user)] = wanted
        scores[TRAIN.items_of(user)] = 100
        return scores

    return score


def test_a_perfect_model_reaches_one_everywhere():
    def score(user: int) -> np.ndarray:
        scores = scorer(10, 0)(user)
        scores[TEST.items_of(user)] += np.arange(TEST.items_of(user).size)
        return scores

    result = evaluate(score, TRAIN, TEST, Ranking(), ONE)
    assert result.sampled == {"hr": 1, "ndcg": 1}
    assert result.full == {"hr": 1, "ndcg": 1, "recall": 1}


@pytest.mark.parametrize("others", [0, 7])
def test_a_model_that_puts_test_items_last_or_level_with_the_rest_reaches_nothing(others):
    result = evaluate(scorer(0, others), TRAIN, TEST, Ranking(), ONE)
    assert result.sampled == {"hr": 0, "ndcg": 0}
    assert result.full == {"hr": 0, "ndcg": 0, "recall": 0}


def test_users_without_test_items_are_left_out():
    asked = []

    def score(user: int) -> np.ndarray:
        asked.append(user)
        return scorer(1, 0)(user)

    assert evaluate(score, TRAIN, TEST, Ranking(), ONE).users.tolist() == [1, 2, 8]
    assert sorted(asked) == [0, 1, 3]


def test_a_user_who_left_fewer_items_untouched_is_ranked_against_those():
    train, test = split({1: list(range(7))}, {1: [7]}, n_items=10)
    scores = floats([0, 0, 0, 0, 0, 0, 0, 5, 9, 1])
    result = evaluate(lambda user: scores, train, test, Ranking(), ONE)
    assert result.sampled == {"hr": 1, "ndcg": pytest.approx(gain(2))}
    everything, last = split({1: list(range(9))}, {1: [9]}, n_items=10)
    assert evaluate(lambda user: scores, everything, last, Ranking(), ONE).sampled == {"hr": 1, "ndcg": 1}


def test_the_seed_of_the_ranking_decides_the_candidates_and_nothing_else_does():
    scores = np.random.default_rng(0).normal(size=(4, 150)).astype(np.float32)

    def sampled(seed: int, workers: Workers = ONE) -> list:
        return evaluate(
            lambda user: scores[user], TRAIN, TEST, Ranking(100, 99, seed), workers
        ).per_user_sampled.tolist()

    assert sampled(0) == sampled(0, TWO)
    assert len({str(sampled(seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_an_error_that_names_the_user(value):
    def score(user: int) -> np.ndarray:
        scores = scorer(1, 0)(user)
        scores[77] = value if user == 3 else 0
        return scores

    for workers in (ONE, TWO):
        with pytest.raises(FedForgetError, match=r"scores user 8 with NaN or infinity(.|\n)*diverged"):
            evaluate(score, TRAIN, TEST, Ranking(), workers)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (([1, 2], [5, 6]), ([1, 9], [5, 6]), "user 9, which is not in the training data"),
        (([1, 2], [5, 6]), ([1, 2], [5, 8]), "item 8, which is not in the training data"),
        ((["a", "b"], [5, 6]), (["a", "c"], [5, 6]), "user 'c', which is not in the training data"),
        (([1, 2], [5, 6]), (["1", "2"], [5, 6]), "user '1', which is not in the training data"),
        (([1, 2], [5, 6]), ([1, 1], [5, 6]), "fewer users than"),
        (([1, 2], [5, 6]), ([1, 2], [5, 5]), "fewer items than"),
    ],
)
def test_test_data_of_another_catalogue_is_refused(train, test, message):
    parts = [Interactions.from_pairs(*pairs) for pairs in (train, test)]
    with pytest.raises(DataError, match=message):
        evaluate(lambda user: np.zeros(2, np.float32), *parts, Ranking(), ONE)


@pytest.mark.parametrize(("setting", "value"), [("k", 0), ("k", -1), ("candidates", 0), ("candidates", -5)])
def test_a_ranking_refuses_settings_that_make_no_sense(setting, value):
    with pytest.raises(ConfigError, match=f"{setting} is {value}"):
        Ranking(**{setting: value})


# The report.


@pytest.fixture
def result() -> Evaluation:
    return Evaluation(10, np.array([4, 7, 9]), np.array([[1.0, 0.5], [0, 0], [0.5, 0.25]]), np.eye(3))


def test_means_are_over_users(result):
    assert result.sampled == {"hr": 0.5, "ndcg": 0.25}
    assert result.full == pytest.approx({"hr": 1 / 3, "ndcg": 1 / 3, "recall": 1 / 3})
    assert result.to_dict() == {"k": 10, "users": 3, "sampled": result.sampled, "full": result.full}


def test_an_evaluation_of_some_users_is_over_them_alone(result):
    some = result.of(np.array([9, 4, 1000]))
    assert some.users.tolist() == [4, 9]
    assert some.sampled == {"hr": 0.75, "ndcg": 0.375}
    assert some.full == {"hr": 0.5, "ndcg": 0, "recall": 0.5}
    assert result.users.size == 3


def test_some_users_are_meant_by_id_and_type():
    numbers = Evaluation(10, np.arange(200), np.zeros((200, 2)), np.zeros((200, 3)))
    assert numbers.of(np.array([str(user) for user in range(200)])).users.size == 0
    names = np.empty(2, object)
    names[:] = ["a", "b"]
    assert Evaluation(10, names, np.zeros((2, 2)), np.zeros((2, 3))).of(np.array(["b", "c"])).users.tolist() == ["b"]


def test_a_frame_has_one_row_a_user_and_one_column_a_metric(result):
    frame = result.to_frame()
    assert frame.columns == ["user", "sampled_hr", "sampled_ndcg", "full_hr", "full_ndcg", "full_recall"]
    assert frame.rows() == [(4, 1.0, 0.5, 1, 0, 0), (7, 0, 0, 0, 1, 0), (9, 0.5, 0.25, 0, 0, 1)]


def test_the_report_reads_as_two_lines_and_the_number_of_users(result):
    assert str(result).splitlines() == [
        "sampled: HR@10 0.5000, NDCG@10 0.2500",
        "full:    HR@10 0.3333, NDCG@10 0.3333, RECALL@10 0.3333",
        "(3 users)",
    ]
