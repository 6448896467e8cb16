"""Ranking metrics per user, in two protocols.

- ``sampled``: each test item is ranked against 99 fixed items without an interaction of the user. HR@k and NDCG@k are
  averaged over a user's test items, then over users.
- ``full``: all items except the user's training items are ranked. HR@k is 1 if any test item is among the first k,
  recall@k is the fraction of test items there, NDCG@k is the usual one with several relevant items.

A test item ranks behind all items with the same score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.errors import ConfigError, DataError, FedForgetError
from fedforget.evaluation.candidates import draw_candidates
from fedforget.evaluation.report import Evaluation
from fedforget.models.parameters import Array
from fedforget.protocol.metrics import FULL, SAMPLED
from fedforget.runtime.compiled import exact
from fedforget.runtime.workers import Places, Workers, taken

#: Returns the scores of all items for a user index.
Scorer = Callable[[int], Array]


@dataclass(frozen=True)
class Ranking:
    """Settings of an evaluation: list length, candidates per test item and the seed of the candidates."""

    k: int = 10
    candidates: int = 99
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("k", self.k), ("candidates", self.candidates)):
            if value < 1:
                raise ConfigError(f"{name} is {value}.", "Give at least 1; the usual protocol is k = 10 against 99.")


def evaluate(score: Scorer, train: Interactions, test: Interactions, ranking: Ranking, workers: Workers) -> Evaluation:
    """Evaluate every user with test items."""
    check_same_catalogue(train, test)
    users = np.flatnonzero(test.counts > 0)
    sampled = np.empty((users.size, len(SAMPLED)))
    full = np.empty((users.size, len(FULL)))

    def run(order: Places, counter: Places) -> None:
        for place in taken(order, counter):
            user = int(users[place])
            scores = score(user)
            if not np.isfinite(scores).all():
                raise FedForgetError(
                    f"The model scores user {train.user_ids.tolist()[user]!r} with NaN or infinity.",
                    "Training diverged: lower the learning rate, or look for poisoned updates.",
                )
            own, wanted = train.items_of(user), test.items_of(user)
            if (shared := first_shared(own, wanted)) >= 0:
                item = train.item_ids.tolist()[shared]
                raise DataError(
                    f"Item {item!r} of user {train.user_ids.tolist()[user]!r} is in the training and the test data.",
                    "Evaluate on the test part: train, test = data.split().",
                )
            touched = np.concatenate([own, wanted])
            candidates = draw_candidates(
                scores.size, touched, wanted.size, ranking.candidates, ranking.seed, train.user_keys[user]
            )
            sampled[place] = sampled_metrics(scores, wanted, candidates, ranking.k)
            full[place] = full_metrics(scores, own, wanted, ranking.k)

    workers.run(run, costs=np.ones(users.size, np.int64))
    return Evaluation(ranking.k, train.user_ids[users], sampled, full)


def check_same_catalogue(train: Interactions, test: Interactions) -> None:
    """Check that the test data is not empty and has the same users and items as the training data."""
    if len(test) == 0:
        raise DataError("The test part contains no interactions.", "Split data with two or more items per user.")
    for kind, train_ids, test_ids in (("user", train.user_ids, test.user_ids), ("item", train.item_ids, test.item_ids)):
        if not np.array_equal(train_ids, test_ids):
            extra = sorted(set(test_ids.tolist()) - set(train_ids.tolist()), key=str)
            what = f"{kind} {extra[0]!r}, which is not in" if extra else f"fewer {kind}s than, or an order other than,"
            raise DataError(
                f"The test data has {what} the training data.",
                "Take both from one split: train, test = data.split().",
            )


@exact
def first_shared(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """The first item that is in both sorted lists, or -1."""
    i, j = 0, 0
    while i < a.size and j < b.size:
        if a[i] == b[j]:
            return int(a[i])
        if a[i] < b[j]:
            i += 1
        else:
            j += 1
    return -1


@exact
def sampled_metrics(
    scores: Array, wanted: NDArray[np.int32], candidates: NDArray[np.int32], k: int
) -> tuple[float, float]:
    """HR@k and NDCG@k of one user, with each test item ranked against its own candidates."""
    hits, gain = 0.0, 0.0
    for i in range(wanted.size):
        rank = 1
        for item in candidates[i]:
            if scores[item] >= scores[wanted[i]]:
                rank += 1
        if rank <= k:
            hits += 1.0
            gain += 1.0 / np.log2(rank + 1.0)
    return hits / wanted.size, gain / wanted.size


@exact
def full_metrics(
    scores: Array, own: NDArray[np.int32], wanted: NDArray[np.int32], k: int
) -> tuple[float, float, float]:
    """HR@k, NDCG@k and recall@k of one user over all items except its training items."""
    ranked = np.ones(scores.size, np.uint8)
    for item in own:
        ranked[item] = 0
    hits, gain, best = 0.0, 0.0, 0.0
    for item in wanted:
        rank = 1
        for other in range(scores.size):
            if ranked[other] and other != item and scores[other] >= scores[item]:
                rank += 1
                if rank > k:
                    break
        if rank <= k:
            hits += 1.0
            gain += 1.0 / np.log2(rank + 1.0)
    for place in range(min(wanted.size, k)):
        best += 1.0 / np.log2(place + 2.0)
    return (1.0 if hits > 0 else 0.0), gain / best, hits / wanted.size
