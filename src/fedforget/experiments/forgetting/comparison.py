"""Comparison of models: the distance of each method to Retrain, beside that of Retrain to itself with other seeds.

In the worlds of one case the same users remain, so that Retrain in two of them that are no pair is Retrain with two
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
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
    group of users, with the difference to Retrain. ``between_seeds``: the same of Retrain with other seeds.
    """
    compared = [outcome for outcome in outcomes if outcome.figures]
    own = [outcome.figures[name] for outcome in compared]
    apart = np.mean([outcome.arrays[f"distances/{name}"] for outcome in compared], axis=0)
    result: dict[str, Any] = {key: _mean(own, key) for key in ("items", "top_10_overlap")}
    result["item_median"] = float(np.median(apart))
    worst, rank = np.argsort(-apart, kind="stable")[:WORST], np.argsort(np.argsort(-popularity, kind="stable"))
    result["worst_items"] = [{"rank": int(rank[item]) + 1, "distance": float(apart[item])} for item in worst]
    figures = [outcome.figures for outcome in compared]
    result["accuracy"] = {group: _accuracy(figures, name, group) for group in own[0]["accuracy"]}
    result["between_seeds"] = between_seeds(compared)
    return result


def between_seeds(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The distance of Retrain to Retrain with another seed: means over pairs of worlds, and their largest values."""
    pairs = [(a.arrays, b.arrays) for a, b in _with_other_seeds(outcomes)]
    apart = [distance.item_distances(a["retrain/items"], b["retrain/items"]) for a, b in pairs]
    tables = [distance.table_distance(a["retrain/items"], b["retrain/items"]) for a, b in pairs]
    shared = [float(distance.overlap(a["retrain/lists"], b["retrain/lists"]).mean()) for a, b in pairs]
    values = {"items": tables, "item_median": [float(np.median(items)) for items in apart], "top_10_overlap": shared}
    means = {key: float(np.mean(value)) for key, value in values.items()}
    return {**means, "items_high": max(tables), "top_10_overlap_low": min(shared)}


def poison_left(outcomes: Sequence[Outcome], name: str) -> dict[str, float]:
    """How much of what malicious users pushed is left after a method: 1 is the attacked model, 0 is Retrain.

    The direction of the push is taken from the worlds with other seeds (attacked − Retrain, mean), so that it has none
    of the chance of the world in which it is looked for. ``deviation`` is that over worlds, ``between_seeds`` what is
    found in Retrain with another seed, where there is nothing.
    """
    found, others = [], []
    for own in outcomes:
        elsewhere = [other for other, one in _with_other_seeds(outcomes) if one is own]
        reference = own.arrays["retrain/items"]
        pushed = [distance.moved(one.arrays["none/items"], one.arrays["retrain/items"], reference) for one in elsewhere]
        direction = np.mean(pushed, axis=0)
        found.append(distance.projection(own.arrays[f"{name}/items"], own.arrays["none/items"], reference, direction))
        others += [
            distance.projection(one.arrays["retrain/items"], own.arrays["none/items"], reference, direction)
            for one in elsewhere
        ]
    deviation = float(np.std(found, ddof=1))
    return {"projection": float(np.mean(found)), "deviation": deviation, "between_seeds": float(np.mean(others))}


def _with_other_seeds(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """All ordered pairs of outcomes but those of a pair of worlds, which have one seed."""
    numbered = [(place // 2, outcome) for place, outcome in enumerate(outcomes)]
    return [(a, b) for (one, a), (other, b) in permutations(numbered, 2) if one != other]


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
