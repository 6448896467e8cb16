"""Panels: the figures that compare ways with each other, a panel for each data set and model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from fedforget.experiments.plots import COLOURS
from fedforget.experiments.ways import WAYS
from fedforget.reproduction import canvas, coverage, paper
from fedforget.reproduction.canvas import INK, SHAPES, Drawing
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.labels import pair_of
from fedforget.reproduction.summary import Group, Place, Spread, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {"hr": "HR@10", "ndcg": "NDCG@10"}


def recovery(summary: Summary) -> Drawing | None:
    """Table 1: the accuracy of every way, with filled and open points for the shares of malicious users."""
    pairs = _pairs(coverage.places(summary, "table-1"))
    if not pairs:
        return None
    ways = _ways(summary, pairs, "sampled_hr")
    shares = _shares(pairs)

    def draw(figure: Figure) -> None:
        for metric, row in zip(METRICS, canvas.grid(figure, len(METRICS), len(pairs)), strict=True):
            for axes, places in zip(row, pairs, strict=True):
                axes.set_title(pair_of(places[0]) if metric == "hr" else "")
                axes.set_xlabel(f"sampled {METRICS[metric]}, %")
                canvas.ways_on_lines(axes, ways, named=axes is row[0])
                axes.locator_params(axis="x", nbins=5)
                for place in places:
                    _accuracies(axes, summary, place, ways, metric, shares)
        marks = [canvas.mark(f"{share:.0%} malicious users", _shape(shares, share)) for share in shares]
        canvas.legend(figure, [*marks, canvas.mark("the paper", "|")])

    return Drawing(draw, canvas.inches(len(pairs), 2 * (0.8 + 0.36 * len(ways)) + 0.4, 3.2))


def _pairs(places: Sequence[Place]) -> list[list[Place]]:
    """The places of each data set and model."""
    return [list(group) for _, group in groupby(places, pair_of)]


def _ways(summary: Summary, pairs: Sequence[Sequence[Place]], metric: str) -> list[str]:
    """The ways of which a metric was measured at one of these places."""
    groups = {way: [Group(place, Treatment(way)) for pair in pairs for place in pair] for way in WAYS}
    return [way for way in WAYS if any(summary.of(group, metric) is not None for group in groups[way])]


def _shares(pairs: Sequence[Sequence[Place]]) -> list[float]:
    return sorted({place.malicious for pair in pairs for place in pair})


def _accuracies(
    axes: Axes, summary: Summary, place: Place, ways: Sequence[str], metric: str, shares: Sequence[float]
) -> None:
    """The points of one place, and the paper's figures as ticks."""
    shift = _shift(shares, place.malicious, 0.4)
    for line, way in enumerate(reversed(ways)):
        spread = summary.of(Group(place, Treatment(way)), f"sampled_{metric}")
        if spread is not None:
            canvas.point(axes, line + shift, spread, COLOURS[way], _shape(shares, place.malicious))
        printed = paper.figure(
            "table-1", metric, dataset=place.dataset, model=place.model, malicious=place.malicious, way=way
        )
        if printed is not None:
            canvas.tick(axes, line + shift, printed)


def _shape(shares: Sequence[float], share: float) -> str:
    return SHAPES[shares.index(share) % len(SHAPES)]


def _shift(shares: Sequence[float], share: float, width: float) -> float:
    """How far above its line a share is drawn: all of them within a width, the first on top."""
    return width * ((len(shares) - 1) / 2 - shares.index(share)) / len(shares)


def speed(summary: Summary) -> Drawing | None:
    """Seconds of every way that does something, and how many times as fast as Retrain it is."""
    pairs = _pairs(coverage.places(summary, "speed"))
    if not pairs:
        return None
    ways = [way for way in _ways(summary, pairs, "seconds") if way in coverage.ACTIVE]
    shares = _shares(pairs)

    def draw(figure: Figure) -> None:
        (row,) = canvas.grid(figure, 1, len(pairs))
        for axes, places in zip(row, pairs, strict=True):
            axes.set_title(pair_of(places[0]))
            axes.set_xlabel("seconds (against Retrain)")
            canvas.ways_on_lines(axes, ways, named=axes is row[0])
            for place in places:
                _times(axes, summary, place, ways, shares)
            axes.set_xlim(0, 1.65 * axes.get_xlim()[1])
            axes.locator_params(axis="x", nbins=4)
        canvas.legend(figure, [canvas.patch(f"{s:.0%} malicious users", pale=s != shares[0]) for s in shares])

    return Drawing(draw, canvas.inches(len(pairs), 1.3 + 0.27 * len(ways) * (1 + len(shares)) / 2 * 1.3, 3.2))


def _times(axes: Axes, summary: Summary, place: Place, ways: Sequence[str], shares: Sequence[float]) -> None:
    for line, way in enumerate(reversed(ways)):
        group = Group(place, Treatment(way))
        seconds, ratio = summary.of(group, "seconds"), summary.mean(group, "ratio")
        if seconds is not None:
            label = f"{seconds.mean:.{1 if seconds.mean < 100 else 0}f} s" + (
                f" ({ratio:.1f}x)" if ratio is not None else ""
            )
            height, pale = 0.8 / len(shares), place.malicious != shares[0]
            shift = _shift(shares, place.malicious, 0.8)
            canvas.bar(axes, line + shift, height, seconds, COLOURS[way], label, pale=pale)


def storage(summary: Summary) -> Drawing | None:
    """What a device keeps, as a share of the item table: its item rows, everything, and what the paper says."""
    places = coverage.storage_places(summary)

    def draw(figure: Figure) -> None:
        (row,) = canvas.grid(figure, 1, len(places))
        for axes, place in zip(row, places, strict=True):
            axes.set_title(pair_of(place))
            axes.set_xlabel("% of the item table (dotted: all of it)")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            canvas.ways_on_lines(axes, coverage.LOGS, named=axes is row[0])
            axes.axvline(100, color=INK, linestyle=":", linewidth=1.2)
            for line, way in enumerate(reversed(coverage.LOGS)):
                _log(axes, summary, Group(place, Treatment(way)), line)
            low, high = axes.get_xlim()
            axes.set_xlim(low / 1.5, high * 1.5)
        shapes = {
            "everything": "o",
            "item rows alone": "D",
            "the paper's formula for rows": "x",
            "the paper's rows": "|",
        }
        canvas.legend(figure, [canvas.mark(label, shape) for label, shape in shapes.items()])

    return Drawing(draw, canvas.inches(len(places), 2.6, 3.2)) if places else None


def _log(axes: Axes, summary: Summary, group: Group, line: int) -> None:
    """The log of one way: points for what was measured, a cross and a tick for what the paper says of it."""
    table, way = summary.mean(group, "item_table_bytes"), group.treatment.way
    if not table:
        return
    for part, shape, shift in (("log_bytes", "o", 0.15), ("log_rows_bytes", "D", -0.15)):
        share = Spread((summary.mean(group, part) or 0.0) / table, None, 1)
        canvas.point(axes, line + shift, share, COLOURS[way], shape)
    if way == "fru-server":
        formula = 100 * (summary.mean(group, "formula_bytes") or 0.0) / table
        canvas.tick(axes, line - 0.42, formula, "x")
        printed = paper.figure("storage", "share", dataset=group.place.dataset, model=group.place.model)
        if printed is not None:
            canvas.tick(axes, line - 0.42, printed)
