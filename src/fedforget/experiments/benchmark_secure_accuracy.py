"""``fedforget bench secure --accuracy``: training and forgetting with sums only, beside plain updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedforget.data import Interactions
from fedforget.experiments import machine
from fedforget.runtime.randomness import UserId
from fedforget.server.presets import configure
from fedforget.server.run_config import RunConfig
from fedforget.server.unlearning import Method, Retrain
from fedforget.simulation.federation import Federation

Say = Callable[[str], None]
Metrics = dict[str, dict[str, float]]
#: What is compared, and the method that forgets; the default if None.
STATES: dict[str, Method | None] = {"default": None, "retrain": Retrain()}


def bench_secure_accuracy(
    datasets: Mapping[str, Interactions],
    models: Sequence[str],
    seeds: int,
    rounds: int,
    leavers: Sequence[int],
    say: Say,
) -> dict[str, Any]:
    """Accuracy over the remaining users after training and after forgetting some users, plain and secure.

    ``leavers`` are numbers of users to forget: the heaviest ones. Each figure is the mean over seeds, with the standard
    deviation.
    """
    rows = []
    for name, data in datasets.items():
        for model in models:
            for count in leavers:
                found: dict[tuple[str, str], list[Metrics]] = {}
                for seed in range(seeds):
                    for kind in ("plain", "secure"):
                        say(f"{name}, {model}, {count} users leave, seed {seed}, {kind}")
                        config = configure(model, "default", seed=seed)
                        server = replace(config.server, secure=kind == "secure")
                        for state, metrics in _states(data, replace(config, server=server), rounds, count).items():
                            found.setdefault((state, kind), []).append(metrics)
                rows += [
                    {"data": name, "model": model, "leavers": count, "state": state, "kind": kind, **_summary(metrics)}
                    for (state, kind), metrics in found.items()
                ]
    return {"rows": rows, "seeds": seeds, "rounds": rounds, "machine": machine.describe()}


def _states(data: Interactions, config: RunConfig, rounds: int, count: int) -> dict[str, Metrics]:
    """The accuracy after training, and after each way to forget the users with most interactions."""
    train, test = data.split(test=0.2, seed=config.seed)
    leavers = heaviest(train, count)
    states = {}
    for name, method in STATES.items():
        with closing(Federation(train, config)) as fed:
            fed.fit(rounds=rounds)
            states["trained"] = _metrics(fed, test, leavers)
            fed.forget(leavers, method)
            states[name] = _metrics(fed, test, leavers)
    return states


def heaviest(data: Interactions, count: int) -> list[UserId]:
    """The users with the most interactions."""
    order = (-data.counts).argsort(kind="stable")[:count]
    users: list[UserId] = data.user_ids[order].tolist()
    return users


def _metrics(fed: Federation, test: Interactions, leavers: Sequence[UserId]) -> Metrics:
    found = fed.evaluate(test)
    found = found.of(found.users[~np.isin(found.users, leavers)])
    return {"sampled": found.sampled, "full": found.full}


def _summary(metrics: Sequence[Metrics]) -> dict[str, Any]:
    """The mean of each metric over seeds and its standard deviation."""
    return {
        protocol: {
            name: {
                "mean": mean(each[protocol][name] for each in metrics),
                "sd": stdev([each[protocol][name] for each in metrics]) if len(metrics) > 1 else 0.0,
            }
            for name in metrics[0][protocol]
        }
        for protocol in metrics[0]
    }
