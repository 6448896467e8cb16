"""Training a world: a federation with some of the candidates, and copies of it that forget them by each method."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.device.compute import Compute
from fedforget.device.recommendation import best_items
from fedforget.evaluation.forgetting import distance
from fedforget.evaluation.forgetting.scores import Flags, Floats
from fedforget.evaluation.forgetting.signals import KINDS, cohesion, fit_signal, lengths, model_signals, step_signals
from fedforget.evaluation.forgetting.suspects import Suspects
from fedforget.experiments.forgetting.cases import CASES
from fedforget.experiments.forgetting.methods import RETRAIN
from fedforget.experiments.forgetting.settings import COMPARED, AuditSettings, World
from fedforget.models.parameters import Array
from fedforget.protocol.metrics import FULL, SAMPLED
from fedforget.server.history import History
from fedforget.simulation.federation import Federation

#: All signals of a user in a world after a method: of the final model, of its trajectory, and of what it changed.
SIGNALS = (*KINDS, "early fit", "mean step", "largest steps", "changed cohesion", "changed length")
#: Earlier snapshots, as shares of the rounds of a trajectory, that users are fitted to.
EARLY = (0.25, 0.5, 0.75)
TOP = 10


@dataclass(frozen=True)
class Compared:
    """A model as it is compared with others: item table, lists of the remaining users, and their accuracy."""

    items: Array
    lists: NDArray[np.int64]
    users: NDArray[Any]
    metrics: Floats


def train_world(settings: AuditSettings, world: World) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the figures of a world, which do not depend on other worlds."""
    suspects, inside = settings.suspects(world.case), settings.inside(world)
    absent, leavers = (settings.ids(suspects.users[part]) for part in (~inside, inside))
    train, test = settings.train.without(absent), settings.test.without(absent)
    compare = world.number < COMPARED
    arrays: dict[str, NDArray[Any]] = {"inside": inside}
    compared: dict[str, Compared] = {}
    with closing(Federation(train, settings.config_of(world), test=test, compute=Compute(workers=1))) as before:
        before.fit(rounds=settings.rounds)
        slim = before.copy(log=settings.config.log) if settings.whole_updates else before
        for name, variant in settings.methods.items():
            source = before if variant.log.whole_updates else slim
            after = source if variant.method is None else source.copy(log=variant.log if source is before else None)
            if variant.method is not None:
                after.forget(leavers, variant.method)
            if not CASES[world.case].malicious:
                arrays[f"signals/{name}"] = _signals(before, after, suspects).astype(np.float32)
            if compare:
                compared[name] = _compared(after, leavers)
            if after is not source:
                after.close()
                del after
        if slim is not before:
            slim.close()
    if compare:
        arrays |= _kept(compared, malicious=CASES[world.case].malicious)
    return arrays, _figures(settings, compared, arrays, world) if compare else {}


def _signals(before: Federation, after: Federation, suspects: Suspects) -> Floats:
    """All ``SIGNALS`` (users, signals)."""
    model, history = after.model, after.history
    changed = after.public.items - before.public.items
    rounds = sorted(history.usable_rounds())
    early = [history.snapshot(rounds[round(share * (len(rounds) - 1))]) for share in EARLY]
    parts = [
        model_signals(model, after.public, suspects),
        np.mean([fit_signal(model, public, suspects) for public in early], axis=0)[:, None],
        step_signals(model, list(_steps(history, rounds)), suspects),
        np.stack([cohesion(changed, suspects), lengths(changed, suspects)], axis=1),
    ]
    return np.concatenate(parts, axis=1)


def _steps(history: History, rounds: Sequence[int]) -> list[tuple[Array, Array]]:
    """The item tables before and after each step of a trajectory."""
    tables = [history.snapshot(round_).items for round_ in rounds]
    return list(pairwise(tables))


def _compared(fed: Federation, leavers: Sequence[Any]) -> Compared:
    """What is compared of a federation: of those of its users who stay."""
    leaving = set(leavers)
    remaining = [user for user in fed.members if user not in leaving]
    places = np.array([fed.train.user_index(user) for user in remaining], np.int64)
    excluded = [fed.train, *([] if fed.test is None else [fed.test])]
    score = fed.devices.row_scorer(fed.public)
    lists = best_items(score, places, TOP, fed.n_items, excluded[:1], fed.devices.workers).items
    accuracy = fed.evaluate().of(np.array(remaining))
    metrics = np.concatenate([accuracy.per_user_sampled, accuracy.per_user_full], axis=1)
    return Compared(fed.public.items, lists, accuracy.users, metrics)


def _kept(compared: dict[str, Compared], *, malicious: bool) -> dict[str, NDArray[Any]]:
    """What is kept of a world to compare it with others: item tables and lists of Retrain, distances of all to it."""
    retrain = compared[RETRAIN]
    kept = {"retrain/items": retrain.items, "retrain/lists": retrain.lists.astype(np.int32)}
    for name, model in compared.items():
        kept[f"distances/{name}"] = distance.item_distances(model.items, retrain.items).astype(np.float32)
        if malicious:
            kept[f"{name}/items"] = model.items
    return kept


def _figures(
    settings: AuditSettings, compared: dict[str, Compared], kept: dict[str, NDArray[Any]], world: World
) -> dict[str, Any]:
    """The distance of each method to Retrain in this world."""
    reference, suspects = compared[RETRAIN], settings.suspects(world.case)
    left = suspects.own[settings.inside(world)]
    groups = _groups(settings, reference.users, left)
    return {
        name: {
            "items": distance.table_distance(kept[f"distances/{name}"]),
            "top_10_overlap": float(distance.overlap(model.lists, reference.lists).mean()),
            "accuracy": {group: _means(model.metrics[places]) for group, places in groups.items()},
        }
        for name, model in compared.items()
    }


def _groups(settings: AuditSettings, users: NDArray[Any], left: Flags) -> dict[str, NDArray[np.int64]]:
    """Groups of the remaining users, a fifth of them each: few items, many items, and like the leavers; and all.

    ``left`` are the items of those who left.
    """
    places = np.array([settings.train.user_index(user) for user in users.tolist()], np.int64)
    counts, fifth = settings.train.counts[places], max(1, places.size // 5)
    by_count = np.argsort(counts, kind="stable")
    everybody = Suspects(settings.train, places, settings.seed)
    return {
        "all": np.arange(places.size),
        "few items": by_count[:fifth],
        "many items": by_count[-fifth:],
        "like the leavers": distance.neighbours(everybody.own, left, fifth),
    }


def _means(metrics: Floats) -> dict[str, float]:
    """Mean metrics of some users, such as ``sampled_hr``."""
    names = [f"sampled_{name}" for name in SAMPLED] + [f"full_{name}" for name in FULL]
    return dict(zip(names, metrics.mean(0).tolist(), strict=True))
