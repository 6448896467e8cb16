"""``fedforget bench accuracy``: how well a federation recommends beside central methods, on the same split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedforget.benchmarks import machine
from fedforget.benchmarks.central import CENTRAL, LABELS, SETTINGS, chosen_central
from fedforget.data import Interactions
from fedforget.errors import ConfigError, DataError
from fedforget.evaluation import Evaluation, Ranking, evaluate
from fedforget.experiments.plots import paint
from fedforget.federation import Federation
from fedforget.models import build_model
from fedforget.presets import recipe
from fedforget.workers import Workers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The rounds at which a curve has its first points; later ones double.
FIRST_POINTS = (1, 5, 10, 25, 50, 100)
#: Okabe and Ito's colours, as in the other plots; grey for what learns nothing about a user.
CENTRAL_STYLE = {
    "popular": ("#999999", ":"),
    "item-knn": ("#e69f00", "-."),
    "als": ("#222222", "--"),
    "als-tuned": ("#222222", ":"),
    "bpr": ("#cc79a7", (0, (5, 1, 1, 1, 1, 1))),
}
MODEL_COLOURS = ("#0072b2", "#009e73", "#d55e00", "#56b4e9")
MODEL_MARKERS = "os^D"

Say = Callable[[str], None]
Parts = tuple[Interactions, Interactions]


def bench_accuracy(
    datasets: Mapping[str, Interactions],
    models: Sequence[str],
    *,
    rounds: int = 100,
    seed: int = 0,
    test: float = 0.2,
    preset: str = "default",
    central: Sequence[str] = tuple(CENTRAL),
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Fit every central method and every federated model to the training part of each data set and evaluate them.

    A federation runs in memory with the preset's settings for its model. Everything is checked before anything is
    trained.
    """
    if rounds < 1:
        raise ConfigError(f"rounds is {rounds}.", "Give at least 1.")
    if not models:
        raise ConfigError("No model is given.", "Give at least one federated model, such as ials.")
    names, methods = list(dict.fromkeys(models)), chosen_central(central)
    settings = {
        "rounds": rounds, "seed": seed, "test": test, "preset": preset,
        "k": Ranking.k, "candidates": Ranking.candidates,
        "models": {name: recipe(preset, build_model(name)).model.settings() for name in names},
        "central": {name: SETTINGS[name] for name in methods},
    }  # fmt: skip
    parts = {name: split_parts(name, data, test, seed) for name, data in datasets.items()}
    result: dict[str, Any] = {"datasets": {}, "settings": settings, "machine": machine.describe()}
    for name, data in datasets.items():
        row: dict[str, Any] = {"users": data.n_users, "items": data.n_items, "interactions": len(data)}
        row |= central_accuracy(parts[name], methods, seed, said := _about(name, say))
        row["models"] = {model: federated_accuracy(parts[name], model, rounds, seed, said, preset) for model in names}
        result["datasets"][name] = with_shares(row)
    return result


def split_parts(name: str, data: Interactions, test: float, seed: int) -> Parts:
    """The training and the test part; data in which nobody has two items is refused."""
    train, test_part = data.split(test=test, seed=seed)
    if len(test_part) == 0:
        raise DataError(
            f"{name} leaves nothing for a test: each of its {data.n_users:,} users has a single item.",
            "Give data in which users have two items or more.",
        )
    return train, test_part


def central_accuracy(parts: Parts, methods: Sequence[str], seed: int, say: Say) -> dict[str, Any]:
    """The accuracy of each central method."""
    train, test = parts
    workers, found = Workers(), {}
    for name in methods:
        say(LABELS[name])
        found[name] = as_dict(evaluate(CENTRAL[name](train, seed), train, test, Ranking(), workers))
    return found


def federated_accuracy(
    parts: Parts, name: str, rounds: int, seed: int, say: Say, preset: str = "default"
) -> dict[str, Any]:
    """The accuracy of a federation after the last round and, as a curve, at some rounds before."""
    train, test = parts
    curve: list[dict[str, Any]] = []
    model = build_model(name)
    protocol = replace(recipe(preset, model).protocol, snapshot_every=rounds)
    with closing(Federation(train, model, seed=seed, preset=preset, protocol=protocol)) as fed:
        for point in curve_rounds(rounds):
            fed.fit(rounds=point)
            curve.append({"round": point, **as_dict(fed.evaluate(test))})
            say(f"federated {name}, round {point}: full NDCG@{Ranking.k} {curve[-1]['full']['ndcg']:.4f}")
    last = {kind: curve[-1][kind] for kind in ("full", "sampled")}
    return {"model": name, "rounds": rounds, **last, "curve": curve}


def curve_rounds(rounds: int) -> list[int]:
    """The rounds at which a curve has its points, the last one included."""
    points = [*FIRST_POINTS]
    while points[-1] < rounds:
        points.append(2 * points[-1])
    return [*(point for point in points if point < rounds), rounds]


def with_shares(row: dict[str, Any]) -> dict[str, Any]:
    """The same data set, each model with its full NDCG as a share of that of ALS, and the first as ``federated``."""
    reference = row["als"]["full"]["ndcg"] if "als" in row else 0.0
    for model in row["models"].values():
        model["of_als"] = model["full"]["ndcg"] / reference if reference else None
    first = next(iter(row["models"].values()))
    return row | {"federated": {key: value for key, value in first.items() if key != "curve"}}


def as_dict(result: Evaluation) -> dict[str, Any]:
    """The means over users, in both protocols."""
    return {"full": result.full, "sampled": result.sampled}


def accuracy_plot(result: Mapping[str, Any], kind: str = "svg") -> bytes:
    """Full NDCG over rounds as a file, svg or png: a panel a data set, central methods as horizontal lines."""
    datasets = result["datasets"]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(datasets), squeeze=False)[0]
        for axes, (name, row) in zip(panels, datasets.items(), strict=True):
            _panel(axes, row)
            axes.set_title(Path(name).name)
            axes.set_xlabel("round")
        panels[0].set_ylabel(f"full NDCG@{result['settings']['k']} in percent")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)

    return paint(draw, (max(7.0, 1.0 + 4.5 * len(datasets)), 4.4), kind)


def _about(name: str, say: Say) -> Say:
    return lambda line: say(f"{name}: {line}")


def _panel(axes: Axes, row: Mapping[str, Any]) -> None:
    for place, (name, model) in enumerate(row["models"].items()):
        rounds = [point["round"] for point in model["curve"]]
        values = [100 * point["full"]["ndcg"] for point in model["curve"]]
        colour = MODEL_COLOURS[place % len(MODEL_COLOURS)]
        marker = MODEL_MARKERS[place % len(MODEL_MARKERS)]
        axes.plot(rounds, values, color=colour, marker=marker, markersize=5, label=f"federated {name}")
    for name, (colour, line) in CENTRAL_STYLE.items():
        if name in row:
            value = 100 * row[name]["full"]["ndcg"]
            axes.axhline(value, color=colour, linestyle=line, linewidth=1.5, label=LABELS[name])
    axes.set_ylim(bottom=0)
    axes.grid(color="#eeeeee")
    axes.set_axisbelow(True)
