"""Comparison of models: the distance of each method to Retrain, beside that of Retrain to itself with other seeds.

In the worlds of one case the same users remain, so that Retrain in two of them is Retrain with two seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np

from fedforget.evaluation.forgetting import distance
from fedforget.experiments.forgetting.methods import RETRAIN
from fedforget.experiments.forgetting.worlds import Outcome


def compare_models(outcomes: Sequence[Outcome], name: str) -> dict[str, Any]:
    """The distance of a method to Retrain in the worlds that are compared, as plain values; means over worlds.

    ``items``: the item table, relative; ``item_median``: the median item; ``worst_items``: the largest distances, with
    the item's rank by popularity; ``top_10_overlap``: shared recommendations of the remaining users; ``accuracy``: by
    group of users, with the difference to Retrain. ``between_seeds``: the same of Retrain with other seeds.
    """
    figures = [outcome.figures for outcome in outcomes if outcome.figures]
    own = [figure[name] for figure in figures]
    result: dict[str, Any] = {key: _mean(own, key) for key in ("items", "item_median", "top_10_overlap")}
    result["worst_items"] = sorted(own[0]["worst_items"], key=lambda item: -float(item["distance"]))
    result["accuracy"] = {group: _accuracy(figures, name, group) for group in own[0]["accuracy"]}
    result["between_seeds"] = between_seeds(outcomes)
    return result


def between_seeds(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The distance of Retrain to Retrain with another seed: means over pairs of worlds."""
    kept = [outcome.arrays for outcome in outcomes if f"{RETRAIN}/items" in outcome.arrays]
    pairs = [(a, b) for a, b in permutations(kept, 2)]
    apart = [distance.item_distances(a["retrain/items"], b["retrain/items"]) for a, b in pairs]
    tables = [distance.table_distance(a["retrain/items"], b["retrain/items"]) for a, b in pairs]
    shared = [distance.overlap(a["retrain/lists"], b["retrain/lists"]).mean() for a, b in pairs]
    medians = [float(np.median(items)) for items in apart]
    values = {"items": tables, "item_median": medians, "top_10_overlap": shared}
    return {key: float(np.mean(value)) for key, value in values.items()}


def poison_left(outcomes: Sequence[Outcome], name: str) -> dict[str, float]:
    """The projection of (method − Retrain) on (attacked − Retrain), and that of Retrain with another seed beside it.

    1 is the attacked model. The other seed has not 0, since both differences contain the chance in Retrain.
    """
    kept = [outcome.arrays for outcome in outcomes]
    other = [
        distance.projection(a["retrain/items"], b["none/items"], b["retrain/items"]) for a, b in permutations(kept, 2)
    ]
    projection = _mean([outcome.figures[name] for outcome in outcomes], "poison")
    return {"projection": projection, "between_seeds": float(np.mean(other))}


def _accuracy(figures: Sequence[dict[str, Any]], name: str, group: str) -> dict[str, float]:
    """The mean accuracy of a group, its difference to Retrain, and the deviation of Retrain between seeds."""
    own, retrain = ([figure[one]["accuracy"][group] for figure in figures] for one in (name, RETRAIN))
    result = {}
    for metric in own[0]:
        result[metric] = _mean(own, metric)
        result[f"{metric}_minus_retrain"] = _mean(own, metric) - _mean(retrain, metric)
        result[f"{metric}_between_seeds"] = float(np.std([one[metric] for one in retrain], ddof=1))
    return result


def _mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))
