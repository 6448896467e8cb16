"""Canvas: what the figures are drawn with: panels, ways on lines, points and curves with their spread, legends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedforget.reproduction.labels import way_of
from fedforget.reproduction.summary import Spread

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, INK, FAINT = "#595959", "#222222", "#eeeeee"
#: How a second share of malicious users is told from the first where bars are drawn, and where points are.
PALER = 0.55
SHAPES = "oDs^v"


@dataclass(frozen=True)
class Drawing:
    """What is to be drawn, and on how many inches."""

    draw: Callable[[Figure], None]
    inches: tuple[float, float]


@dataclass(frozen=True)
class Stroke:
    """How a curve looks: its colour, marker and line."""

    colour: str
    marker: str
    line: str = "-"


def grid(figure: Figure, rows: int, columns: int) -> list[list[Axes]]:
    """Panels, row by row."""
    return [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def inches(columns: int, height: float, width: float) -> tuple[float, float]:
    """The size of a figure with so many columns of a width, with room for the names on the left."""
    return max(7.0, 1.6 + width * columns), height


def ways_on_lines(axes: Axes, ways: Sequence[str], *, named: bool) -> None:
    """A line for each way, the first on top, with their names or, beside panels that have them, without."""
    axes.set_yticks(range(len(ways)), [way_of(way) for way in reversed(ways)] if named else [""] * len(ways))
    axes.set_ylim(-0.6, len(ways) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)


def point(axes: Axes, line: float, spread: Spread, colour: str, marker: str) -> None:
    """A share in percent as a point on a line, with its spread."""
    axes.errorbar(
        [100 * spread.mean], [line], xerr=None if spread.deviation is None else [100 * spread.deviation],
        fmt=marker, markersize=7, color=colour, markeredgecolor=INK, markeredgewidth=0.7, ecolor=INK, capsize=2.5,
    )  # fmt: skip


def tick(axes: Axes, line: float, percent: float, marker: str = "|") -> None:
    """What the paper says, on top of everything else."""
    axes.plot([percent], [line], marker, color=INK, markersize=9, markeredgewidth=1.8, zorder=5)


def bar(axes: Axes, line: float, height: float, spread: Spread, colour: str, label: str, *, pale: bool) -> None:
    """A bar from zero with its spread and a label at its end."""
    bars = axes.barh(
        [line], [spread.mean], height, xerr=None if spread.deviation is None else [spread.deviation],
        color=colour, alpha=PALER if pale else 1.0, ecolor=INK, capsize=2.5,
    )  # fmt: skip
    axes.bar_label(bars, [label], padding=4, fontsize=9)


def curve(axes: Axes, spreads: Mapping[float, Spread], scale: float, stroke: Stroke, label: str) -> None:
    """Means over x, joined by a line, with their spreads."""
    axes.errorbar(
        list(spreads), [scale * spread.mean for spread in spreads.values()],
        yerr=[scale * (spread.deviation or 0.0) for spread in spreads.values()],
        color=stroke.colour, marker=stroke.marker, linestyle=stroke.line, markersize=6, capsize=2.5, label=label,
    )  # fmt: skip
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)


def legend(figure: Figure, entries: Sequence[Artist]) -> None:
    """What the marks mean, below all panels."""
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False)


def mark(label: str, marker: str, colour: str = GREY) -> Artist:
    """A point as a legend shows it."""
    from matplotlib.lines import Line2D

    width = 1.8 if marker in "|x" else 0.7
    style: Any = {"markersize": 7, "markeredgewidth": width, "markeredgecolor": INK}
    return Line2D([], [], linestyle="", marker=marker, color=colour, label=label, **style)


def patch(label: str, *, pale: bool) -> Artist:
    """A bar as a legend shows it."""
    from matplotlib.patches import Patch

    return Patch(color=GREY, alpha=PALER if pale else 1.0, label=label)
