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
from fedforget.evaluation.forgetting.scores import Floats, Ints
from fedforget.experiments.forgetting.methods import NONE, RETRAIN
from fedforget.experiments.forgetting.worlds import Outcome
from fedforget.models.parameters import Array

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
    """How much of what malicious users pushed is left after each method: 1 in the attacked model, 0 where nothing is.

    Both worlds of a pair have one seed, and different attackers. The direction is the difference of the two attacked
    models; what is left of it is the projection of the difference of the two models after the method. What a method
    does to every model, whoever attacked, cancels. ``deviation`` is that over worlds; ``chance`` is the deviation of
    the same between models of Retrain with other seeds, which no attacker has touched.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    chance: list[float] = []
    for place in range(0, len(outcomes), 2):
        pair = outcomes[place : place + 2]
        frame = pair[0].arrays["retrain/items"]
        direction = _apart(pair, NONE, frame)
        for name, values in found.items():
            values.append(distance.projection(_apart(pair, name, frame), direction))
        others = [(number // 2, one) for number, one in enumerate(outcomes) if number // 2 != place // 2]
        untouched = [(seed, distance.aligned(one.arrays["retrain/items"], frame)) for seed, one in others]
        chance += [distance.projection(a - b, direction) for (s, a), (t, b) in combinations(untouched, 2) if s != t]
    return (
        {
            name: {
                "projection": float(np.mean(one)),
                "deviation": float(np.std(one, ddof=1)),
                "chance": float(np.std(chance)),
            }
            for name, one in found.items()
        }
        if outcomes
        else {}
    )


def _apart(pair: Sequence[Outcome], name: str, frame: Array) -> Floats:
    """The difference of the item tables after a method in two worlds, both rotated onto a frame."""
    one, other = (distance.aligned(outcome.arrays[f"{name}/items"], frame) for outcome in pair)
    result: Floats = one - other
    return result


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
