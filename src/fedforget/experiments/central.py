"""Centralized baselines: popularity, and item kNN, ALS and BPR of the optional library ``implicit``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedforget.data import Interactions
from fedforget.errors import ConfigError, unknown_choice
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.ranking import Scorer
from fedforget.models.parameters import Array
from fedforget.runtime.workers import Workers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: Settings of each method; all others are the library's defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "popular": {},
    "item-knn": {"K": 100},
    "als": {"factors": 64, "alpha": 10, "regularization": 0.01, "iterations": 15},
    "als-tuned": {"factors": 64, "iterations": 15},
    "bpr": {"factors": 64},
}
LABELS = {"popular": "Most popular", "item-knn": "Item kNN", "als": "ALS", "als-tuned": "ALS, tuned here", "bpr": "BPR"}
#: The grid of the tuned ALS, and the fraction of the training data used for validation.
ALPHAS, REGULARISATIONS, VALIDATION = (1, 3, 10), (0.01, 1, 10, 30, 100), 0.1


def popular(train: Interactions, seed: int = 0) -> Scorer:
    """The number of users of each item."""
    counts = np.bincount(train.indices, minlength=train.n_items).astype(np.float32)
    return lambda _: counts


def item_knn(train: Interactions, seed: int) -> Scorer:
    """Cosine similarity of items, summed over the user's items."""
    from implicit.nearest_neighbours import CosineRecommender
    from implicit.utils import ParameterWarning

    model, matrix = CosineRecommender(**SETTINGS["item-knn"]), user_item_matrix(train)
    with warnings.catch_warnings():  # implicit warns about its own intermediate matrix
        warnings.simplefilter("ignore", ParameterWarning)
        model.fit(matrix, show_progress=False)
    return lambda user: (matrix[user] @ model.similarity).toarray()[0].astype(np.float32)


def als(train: Interactions, seed: int, **settings: float) -> Scorer:
    """Alternating least squares on implicit feedback (Hu et al. 2008)."""
    from implicit.als import AlternatingLeastSquares

    chosen = settings or SETTINGS["als"]
    return _fit_factors(train, lambda: AlternatingLeastSquares(**chosen, use_gpu=False, random_state=seed))


def als_tuned(train: Interactions, seed: int) -> Scorer:
    """ALS with the weight and regularization that are best on a part of the training data."""
    fit, validation = train.split(test=VALIDATION, seed=seed)
    grid = [{"alpha": alpha, "regularization": reg} for alpha in ALPHAS for reg in REGULARISATIONS]

    def ndcg(settings: dict[str, float]) -> float:
        score = als(fit, seed, **SETTINGS["als-tuned"], **settings)
        return evaluate(score, fit, validation, Ranking(), Workers()).full["ndcg"]

    return als(train, seed, **SETTINGS["als-tuned"], **max(grid, key=ndcg))


def bpr(train: Interactions, seed: int) -> Scorer:
    """Bayesian personalized ranking (Rendle et al. 2009), on one thread to be reproducible."""
    from implicit.bpr import BayesianPersonalizedRanking

    settings = SETTINGS["bpr"] | {"use_gpu": False, "num_threads": 1, "random_state": seed}
    return _fit_factors(train, lambda: BayesianPersonalizedRanking(**settings))


#: Each method fits the training part with a seed and returns a scorer.
CENTRAL: dict[str, Callable[[Interactions, int], Scorer]] = {
    "popular": popular,
    "item-knn": item_knn,
    "als": als,
    "als-tuned": als_tuned,
    "bpr": bpr,
}


def select_central(names: Iterable[str]) -> list[str]:
    """The named methods without duplicates."""
    chosen = list(dict.fromkeys(names))
    for name in chosen or [""]:
        if name not in CENTRAL:
            raise unknown_choice("central method", name, list(CENTRAL))
    missing = [name for name in chosen if name != "popular"]
    if missing and find_spec("implicit") is None:
        raise ConfigError(
            f"The library implicit is not installed; it computes {', '.join(missing)}.",
            "Install it with: pip install 'fedforget[compare]'\nOr compare with popularity alone: --central popular",
        )
    return chosen


def user_item_matrix(train: Interactions) -> csr_matrix:
    """The interactions as a sparse matrix of ones."""
    from scipy.sparse import csr_matrix

    indices, indptr = train.indices.astype(np.int32), train.indptr.astype(np.int32)
    return csr_matrix((np.ones(len(train), np.float32), indices, indptr), shape=(train.n_users, train.n_items))


def _fit_factors(train: Interactions, build: Callable[[], Any]) -> Scorer:
    """Scores by the factors of a model of implicit, which warns if BLAS has several threads."""
    with threadpool_limits(limits=1, user_api="blas"):
        model = build()
        model.fit(user_item_matrix(train), show_progress=False)
    users: Array = model.user_factors
    items: Array = model.item_factors
    return lambda user: items @ users[user]
