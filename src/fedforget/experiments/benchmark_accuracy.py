"""``fedforget bench accuracy``: accuracy of federated models and centralized baselines on the same split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedforget.data import Interactions
from fedforget.errors import ConfigError, DataError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.experiments import machine
from fedforget.experiments.central import CENTRAL, LABELS, SETTINGS, select_central
from fedforget.experiments.plots import curve_plot, curve_points
from fedforget.runtime.workers import Workers
from fedforget.server.presets import configure
from fedforget.simulation.federation import Federation

#: The first rounds of a curve; later ones double.
FIRST_POINTS = (1, 5, 10, 25, 50, 100)
Say = Callable[[str], None]
Parts = tuple[Interactions, Interactions]


@dataclass(frozen=True)
class AccuracySettings:
    """How models are trained and data is split."""

    rounds: int = 100
    seed: int = 0
    test: float = 0.2
    preset: str = "default"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}.", "Give at least 1.")


def bench_accuracy(
    datasets: Mapping[str, Interactions],
    models: Sequence[str],
    settings: AccuracySettings,
    *,
    central: Sequence[str] = tuple(CENTRAL),
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Evaluate every federated model and every baseline on each data set. All input is checked before training.

    Each model's ``of_als`` is its full NDCG relative to ALS; ``federated`` repeats the first model.
    """
    if not models:
        raise ConfigError("No model is given.", "Give at least one federated model, such as ials.")
    names, methods = list(dict.fromkeys(models)), select_central(central)
    shown = asdict(settings) | {"k": Ranking.k, "candidates": Ranking.candidates}
    shown["models"] = {name: configure(name, settings.preset).model.settings() for name in names}
    shown["central"] = {name: SETTINGS[name] for name in methods}
    parts = {name: data.split(test=settings.test, seed=settings.seed) for name, data in datasets.items()}
    for name, (train, test) in parts.items():
        if len(test) == 0:
            raise DataError(
                f"{name} leaves nothing for a test: each of its {train.n_users:,} users has a single item.",
                "Give data in which users have two items or more.",
            )
    result: dict[str, Any] = {"datasets": {}, "settings": shown, "machine": machine.describe()}
    for name, data in datasets.items():
        tell = lambda line, name=name: say(f"{name}: {line}")  # noqa: E731
        row: dict[str, Any] = {"users": data.n_users, "items": data.n_items, "interactions": len(data)}
        row |= central_accuracy(parts[name], methods, settings.seed, tell)
        row["models"] = {model: federated_accuracy(parts[name], model, settings, tell) for model in names}
        reference = row["als"]["full"]["ndcg"] if "als" in row else 0.0
        for model in row["models"].values():
            model["of_als"] = model["full"]["ndcg"] / reference if reference else None
        first = row["models"][names[0]]
        row["federated"] = {key: value for key, value in first.items() if key != "curve"}
        result["datasets"][name] = row
    return result


def central_accuracy(parts: Parts, methods: Sequence[str], seed: int, say: Say) -> dict[str, Any]:
    """The accuracy of each baseline."""
    train, test = parts
    result = {}
    for name in methods:
        say(LABELS[name])
        result[name] = as_dict(evaluate(CENTRAL[name](train, seed), train, test, Ranking(), Workers()))
    return result


def federated_accuracy(parts: Parts, name: str, settings: AccuracySettings, say: Say) -> dict[str, Any]:
    """The accuracy of a federated model over the rounds."""
    train, test = parts
    curve: list[dict[str, Any]] = []
    config, rounds = configure(name, settings.preset, seed=settings.seed), settings.rounds
    config = replace(config, server=replace(config.server, snapshot_every=rounds))
    with closing(Federation(train, config)) as fed:
        for point in curve_rounds(rounds):
            fed.fit(rounds=point)
            curve.append({"round": point, **as_dict(fed.evaluate(test))})
            say(f"federated {name}, round {point}: full NDCG@{Ranking.k} {curve[-1]['full']['ndcg']:.4f}")
    last = {kind: curve[-1][kind] for kind in ("full", "sampled")}
    return {"model": name, "rounds": rounds, **last, "curve": curve}


def curve_rounds(rounds: int) -> list[int]:
    """The rounds of a curve, up to the last one."""
    points = [*FIRST_POINTS]
    while points[-1] < rounds:
        points.append(2 * points[-1])
    return [*(point for point in points if point < rounds), rounds]


def as_dict(result: Evaluation) -> dict[str, Any]:
    """The means over users in both protocols."""
    return {"full": result.full, "sampled": result.sampled}


def accuracy_plot(result: Mapping[str, Any], kind: str = "svg") -> bytes:
    """Full NDCG over rounds, with a panel for each data set and horizontal lines for the baselines."""
    ylabel = f"full NDCG@{result['settings']['k']} in percent"
    rows = []
    for name, row in result["datasets"].items():
        curves = {f"federated {model}": found["curve"] for model, found in row["models"].items()}
        curves |= {LABELS[method]: [row[method]] for method in CENTRAL if method in row}
        rows += [
            (Path(name).name, "round", ylabel, series, point.get("round"), 100 * point["full"]["ndcg"], None)
            for series, curve in curves.items()
            for point in curve
        ]
    return curve_plot(curve_points(rows), kind)
