"""Figures: one for each study, as SVG and PNG, with the standard deviation over seeds as error bars.

A study without data has no figure. The same rows give the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fedforget.device.sampling import KINDS
from fedforget.experiments.plots import COLOURS, MARKERS, paint
from fedforget.reproduction import canvas, coverage, panels
from fedforget.reproduction.canvas import INK, Drawing, Stroke
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.labels import place_of, way_of
from fedforget.reproduction.studies import REPLAYS, SELECTIONS
from fedforget.reproduction.summary import RETRAIN, Group, Place, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The curves of one panel: for each its points, by what is varied.
Curves = dict[str, dict[float, Group]]

FORMATS = ("svg", "png")
ACCURACIES = {"sampled_hr": "sampled HR@10, %", "sampled_ndcg": "sampled NDCG@10, %"}
RATIO = {"ratio": "times as fast as Retrain"}
#: Selections and samplers: the paper's choice is blue.
STROKES = {
    "importance": Stroke(COLOURS["fru-device"], "o"),
    "mixed": Stroke(COLOURS["fru-device"], "o"),
    "random": Stroke(COLOURS["fedremove"], "s", "--"),
    "user": Stroke(COLOURS["fru-logged"], "^", "-."),
    "item": Stroke(COLOURS["continue"], "D", ":"),
}


def drawn(summary: Summary) -> dict[str, Drawing]:
    """The drawing of every study that has data."""
    found = {study: make(summary) for study, make in FIGURES.items()}
    return {study: drawing for study, drawing in found.items() if drawing is not None}


def painted(summary: Summary) -> Iterator[tuple[str, bytes]]:
    """Every file of every figure, by its name."""
    for study, drawing in drawn(summary).items():
        for kind in FORMATS:
            yield f"{study}.{kind}", paint(drawing.draw, drawing.inches, kind)


def alpha(summary: Summary) -> Drawing | None:
    """Accuracy by the share of rows kept, selected by importance or at random, and where Retrain is."""

    def curves(place: Place) -> Curves:
        return {how: coverage.alpha_curve(summary, place, how) for how in SELECTIONS}

    places = coverage.places(summary, "alpha")
    return _curves(summary, places, curves, STROKES, "α, share of the rows kept", ACCURACIES, level=RETRAIN)


def beta(summary: Summary) -> Drawing | None:
    """Accuracy of every sampler by the share of negatives."""

    def curves(place: Place) -> Curves:
        shares = coverage.betas(summary, place)
        return {kind: {share: Group(place, Treatment("attacked"), kind, share) for share in shares} for kind in KINDS}

    places = coverage.places(summary, "beta")
    return _curves(summary, places, curves, STROKES, "β, share of the negatives", ACCURACIES)


def speedup(summary: Summary) -> Drawing | None:
    """Accuracy and, where it was measured, time of every way that has a λ."""

    def curves(place: Place) -> Curves:
        return {way: coverage.lambda_curve(summary, place, way) for way in REPLAYS}

    places = coverage.places(summary, "lambda")
    timed = any(len(coverage.lambda_curve(summary, place, way, "ratio")) > 1 for place in places for way in REPLAYS)
    metrics = {**ACCURACIES, **RATIO} if timed else ACCURACIES
    strokes = {way: Stroke(COLOURS[way], MARKERS[way]) for way in REPLAYS}
    return _curves(summary, places, curves, strokes, "λ, share of the epochs", metrics, level=RETRAIN)


def _curves(
    summary: Summary,
    places: Sequence[Place],
    curves: Callable[[Place], Curves],
    strokes: Mapping[str, Stroke],
    label: str,
    metrics: Mapping[str, str],
    level: Treatment | None = None,
) -> Drawing | None:
    """A column of panels for each place, a row for each metric; a dotted line where ``level`` is."""

    def draw(figure: Figure) -> None:
        for metric, row in zip(metrics, canvas.grid(figure, len(metrics), len(places)), strict=True):
            for axes, place in zip(row, places, strict=True):
                _panel(axes, summary, curves(place), strokes, metric)
                if level is not None:
                    _level(axes, summary, Group(place, level), metric)
                axes.set_title(place_of(place) if metric == "sampled_hr" else "")
                axes.set_xlabel(label)
                axes.set_ylabel(metrics[metric] if axes is row[0] else "")
        handles, _ = figure.axes[0].get_legend_handles_labels()
        canvas.legend(figure, handles)

    return Drawing(draw, canvas.inches(len(places), 2.6 * len(metrics) + 0.4, 3.6)) if places else None


def _panel(axes: Axes, summary: Summary, curves: Curves, strokes: Mapping[str, Stroke], metric: str) -> None:
    for name, points in curves.items():
        spreads = {x: spread for x, group in points.items() if (spread := summary.of(group, metric)) is not None}
        label = way_of(name) if name in REPLAYS else name
        canvas.curve(axes, spreads, _scale(metric), strokes[name], label)


def _level(axes: Axes, summary: Summary, group: Group, metric: str) -> None:
    mean = summary.mean(group, metric)
    if mean is not None:
        axes.axhline(_scale(metric) * mean, color=INK, linestyle=":", linewidth=1.4, label=way_of(group.treatment.way))


def _scale(metric: str) -> float:
    return 1.0 if metric in RATIO else 100.0


FIGURES: dict[str, Callable[[Summary], Drawing | None]] = {
    "table-1": panels.recovery,
    "speed": panels.speed,
    "alpha": alpha,
    "beta": beta,
    "lambda": speedup,
    "storage": panels.storage,
}
