"""Central methods: recommenders that see all interactions at once, to compare a federation with.

Popularity is computed here; item kNN, ALS and BPR are those of the library ``implicit``, an optional dependency that is
imported only when one of them is fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedforget.data import Interactions
from fedforget.errors import ConfigError, one_of
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.ranking import Scorer
from fedforget.experiments.measures import popularity
from fedforget.models.parameters import Array
from fedforget.workers import Workers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: The settings of each method; everything else is the library's default.
SETTINGS: dict[str, dict[str, Any]] = {
    "popular": {},
    "item-knn": {"K": 100},
    "als": {"factors": 64, "alpha": 10, "regularization": 0.01, "iterations": 15},
    "als-tuned": {"factors": 64, "iterations": 15},
    "bpr": {"factors": 64},
}
LABELS = {
    "popular": "Most popular",
    "item-knn": "Item kNN",
    "als": "ALS",
    "als-tuned": "ALS, tuned here",
    "bpr": "BPR",
}
#: What ALS is tuned over, by full NDCG on a tenth of the training part.
ALPHAS, REGULARISATIONS, HELD_BACK = (1, 3, 10), (0.01, 1, 10, 30, 100), 0.1


def popular(train: Interactions, seed: int) -> Scorer:
    """The number of users of each item, the same for every user."""
    return popularity(train)


def item_knn(train: Interactions, seed: int) -> Scorer:
    """Cosine similarity of items, summed over the user's own items."""
    from implicit.nearest_neighbours import CosineRecommender
    from implicit.utils import ParameterWarning

    model, matrix = CosineRecommender(**SETTINGS["item-knn"]), user_item_matrix(train)
    with warnings.catch_warnings():  # implicit converts its own intermediate matrix and warns of that
        warnings.simplefilter("ignore", ParameterWarning)
        model.fit(matrix, show_progress=False)

    def score(user: int) -> Array:
        scores: Array = (matrix[user] @ model.similarity).toarray()[0].astype(np.float32)
        return scores

    return score


def als(train: Interactions, seed: int) -> Scorer:
    """Alternating least squares on implicit feedback (Hu et al. 2008)."""
    return _als(train, seed, **SETTINGS["als"])


def als_tuned(train: Interactions, seed: int) -> Scorer:
    """ALS with the weight and the regularisation that do best on a part of the training data."""
    fit, held = train.split(test=HELD_BACK, seed=seed)
    fixed, workers = SETTINGS["als-tuned"], Workers()

    def found(setting: dict[str, float]) -> float:
        return evaluate(_als(fit, seed, **fixed, **setting), fit, held, Ranking(), workers).full["ndcg"]

    settings = [{"alpha": alpha, "regularization": reg} for alpha in ALPHAS for reg in REGULARISATIONS]
    return _als(train, seed, **fixed, **max(settings, key=found))


def _als(train: Interactions, seed: int, **settings: float) -> Scorer:
    from implicit.als import AlternatingLeastSquares

    with threadpool_limits(limits=1, user_api="blas"):
        model = AlternatingLeastSquares(**settings, use_gpu=False, random_state=seed)
        model.fit(user_item_matrix(train), show_progress=False)
    return _products(model.user_factors, model.item_factors)


def bpr(train: Interactions, seed: int) -> Scorer:
    """Bayesian personalised ranking (Rendle et al. 2009), on one thread: with more, no two results are the same."""
    from implicit.bpr import BayesianPersonalizedRanking

    with threadpool_limits(limits=1, user_api="blas"):
        model = BayesianPersonalizedRanking(**SETTINGS["bpr"], use_gpu=False, num_threads=1, random_state=seed)
        model.fit(user_item_matrix(train), show_progress=False)
    return _products(model.user_factors, model.item_factors)


#: Each fits a method to the training part, with a seed, and gives the scores of all items for a user index.
CENTRAL: dict[str, Callable[[Interactions, int], Scorer]] = {
    "popular": popular,
    "item-knn": item_knn,
    "als": als,
    "als-tuned": als_tuned,
    "bpr": bpr,
}


def chosen_central(names: Iterable[str]) -> list[str]:
    """These methods, each once; an unknown one is refused, and so is one whose library is not installed."""
    chosen = list(dict.fromkeys(names))
    for name in chosen or [""]:
        if name not in CENTRAL:
            raise one_of("central method", name, list(CENTRAL))
    missing = [name for name in chosen if name != "popular"]
    if missing and find_spec("implicit") is None:
        raise ConfigError(
            f"The library implicit is not installed; it computes {', '.join(missing)}.",
            "Install it with: pip install 'fedforget[compare]'\nOr compare with popularity alone: --central popular",
        )
    return chosen


def user_item_matrix(train: Interactions) -> csr_matrix:
    """The interactions as implicit takes them: ones, with writable 32-bit indices."""
    from scipy.sparse import csr_matrix

    values = np.ones(len(train), np.float32)
    indices, indptr = train.indices.astype(np.int32), train.indptr.astype(np.int32)
    return csr_matrix((values, indices, indptr), shape=(train.n_users, train.n_items))


def _products(users: Array, items: Array) -> Scorer:
    return lambda user: items @ users[user]
