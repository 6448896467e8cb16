"""Comparison of models: the distance of each method to Retrain, beside that of Retrain to itself with other seeds.

In the worlds of one case the same users remain, so that Retrain in two of them that are no pair is Retrain with two
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedforget.evaluation.forgetting import distance
from fedforget.evaluation.forgetting.scores import Ints
from fedforget.experiments.forgetting.methods import RETRAIN
from fedforget.experiments.forgetting.worlds import Outcome

#: Items with the largest distance to Retrain that are named.
WORST = 5


def compare_models(outcomes: Sequence[Outcome], name: str, popularity: Ints) -> dict[str, Any]:
    """The distance of a method to Retrain in the worlds that are compared, as plain values; means over worlds.

    ``items``: the item table, relative; ``item_median``: the median item; ``worst_items``: the largest distances, with
    the item's rank by popularity; ``top_10_overlap``: shared recommendations of the remaining users; ``accuracy``: by
    group of users, with the difference to Retrain.
    """
    compared = _compared(outcomes)
    own = [outcome.figures[name] for outcome in compared]
    apart = np.mean([outcome.arrays[f"distances/{name}"] for outcome in compared], axis=0)
    result: dict[str, Any] = {key: _mean(own, key) for key in ("items", "top_10_overlap")}
    result["item_median"] = float(np.median(apart))
    worst, rank = np.argsort(-apart, kind="stable")[:WORST], np.argsort(np.argsort(-popularity, kind="stable"))
    result["worst_items"] = [{"rank": int(rank[item]) + 1, "distance": float(apart[item])} for item in worst]
    figures = [outcome.figures for outcome in compared]
    result["accuracy"] = {group: _accuracy(figures, name, group) for group in own[0]["accuracy"]}
    return result


def between_seeds(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The distance of Retrain to Retrain with another seed: means over pairs of worlds, and their largest values."""
    numbered = [(place // 2, outcome.arrays) for place, outcome in enumerate(_compared(outcomes))]
    pairs = [(a, b) for (one, a), (other, b) in combinations(numbered, 2) if one != other]
    apart = [distance.item_distances(a["retrain/items"], b["retrain/items"]) for a, b in pairs]
    tables = [distance.table_distance(items) for items in apart]
    shared = [float(distance.overlap(a["retrain/lists"], b["retrain/lists"]).mean()) for a, b in pairs]
    values = {"items": tables, "item_median": [float(np.median(items)) for items in apart], "top_10_overlap": shared}
    means = {key: float(np.mean(value)) for key, value in values.items()}
    return {**means, "items_high": max(tables), "top_10_overlap_low": min(shared)}


def poison_left(outcomes: Sequence[Outcome], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """How much of what malicious users pushed is left after each method: 1 is the attacked model, 0 is Retrain.

    The direction of the push is taken from the worlds with other seeds (attacked − Retrain, mean), so that it has none
    of the chance of the world in which it is looked for. ``deviation`` is that over worlds, ``between_seeds`` what is
    found in Retrain with another seed, where there is nothing.
    """
    if not outcomes:
        return {}
    found: dict[str, list[float]] = {name: [] for name in names}
    others: list[float] = []
    for place, own in enumerate(outcomes):
        elsewhere = [other.arrays for number, other in enumerate(outcomes) if number // 2 != place // 2]
        pushed, reference = own.arrays["none/items"], own.arrays["retrain/items"]
        pushes = [distance.moved(one["none/items"], one["retrain/items"], reference) for one in elsewhere]
        direction = np.mean(pushes, axis=0)
        for name, values in found.items():
            values.append(distance.projection(own.arrays[f"{name}/items"], pushed, reference, direction))
        others += [distance.projection(one["retrain/items"], pushed, reference, direction) for one in elsewhere]
    between = float(np.mean(others))
    return {
        name: {"projection": float(np.mean(one)), "deviation": float(np.std(one, ddof=1)), "between_seeds": between}
        for name, one in found.items()
    }


def _compared(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The worlds whose models are compared."""
    return [outcome for outcome in outcomes if outcome.figures]


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
