"""Plots: accuracy, time, log size and the way over the rounds, each as SVG to stand inside a page.

matplotlib is imported only here and only when something is drawn: it is slow to load, and few commands need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from fedforget.experiments.comparison import Comparison
from fedforget.experiments.outcome import Accuracy
from fedforget.experiments.ways import WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which people with colour-blindness can tell apart; grey for the reference.
COLOURS = {
    "attacked": "#d55e00",
    "continue": "#cc79a7",
    "fedremove": "#e69f00",
    "retrain": "#595959",
    "retrain-condensed": "#a6a6a6",
    "fru-all": "#f0e442",
    "fru-server": "#56b4e9",
    "fru-device": "#0072b2",
    "fru-logged": "#009e73",
}
#: Those on which white letters would be hard to read.
PALE = ("retrain-condensed", "continue", "fedremove", "fru-all", "fru-server")
MARKERS = {"attacked": "X", "retrain": "s", "fru-server": "D", "fru-device": "o", "fru-logged": "^"}
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",
    "svg.hashsalt": "fedforget",
}
#: What matplotlib would add to a file of each kind, and the resolution of those that have one.
UNSAID = {"svg": ("Date", "Creator", "Format", "Type"), "png": ("Software",)}
DPI = 120
METRICS: dict[str, Callable[[Accuracy], float]] = {
    "sampled HR@10": lambda accuracy: 100 * accuracy.sampled["hr"],
    "sampled NDCG@10": lambda accuracy: 100 * accuracy.sampled["ndcg"],
    "full HR@10": lambda accuracy: 100 * accuracy.full["hr"],
    "full NDCG@10": lambda accuracy: 100 * accuracy.full["ndcg"],
}


def accuracy_by_method(comparison: Comparison) -> str:
    """Both metrics in both protocols, a bar a method, and a line where Retrain is."""

    def draw(figure: Figure) -> None:
        for column, ((title, metric), axes) in enumerate(zip(METRICS.items(), _row(figure, len(METRICS)), strict=True)):
            values = {name: metric(outcome.accuracy) for name, outcome in comparison.outcomes.items()}
            _bars(axes, values, names=column == 0)
            _values_inside(axes, values)
            axes.set_title(title)
            if "retrain" in values:
                axes.axvline(values["retrain"], color="#222222", linestyle=":", linewidth=1.3)

    return _svg(draw, "accuracy", (10, _height(comparison)))


def time_by_method(comparison: Comparison) -> str:
    """Seconds of unlearning, and how many times faster than Retrain that is."""

    def draw(figure: Figure) -> None:
        outcomes = {name: outcome for name, outcome in comparison.outcomes.items() if WAYS[name].method is not None}
        labels = {
            name: f"{outcome.seconds:.1f} s" + (f"  ({outcome.speedup:.1f}x)" if outcome.speedup else "")
            for name, outcome in outcomes.items()
        }
        (axes,) = _row(figure, 1)
        bars = _bars(axes, {name: outcome.seconds for name, outcome in outcomes.items()}, names=True)
        axes.bar_label(bars, list(labels.values())[::-1], padding=4, fontsize=10)
        axes.margins(x=0.15)
        axes.set_xlabel("seconds (speed-up over Retrain)")

    return _svg(draw, "time", (10, _height(comparison)))


def log_by_method(comparison: Comparison) -> str:
    """Bytes of log a device, from small to large on a logarithmic scale, and the item table to measure them by."""

    def draw(figure: Figure) -> None:
        (axes,) = _row(figure, 1)
        sizes = {name: outcome.log.total for name, outcome in comparison.outcomes.items()}
        for place, (name, size) in enumerate(reversed(list(sizes.items()))):
            share = comparison.outcomes[name].log.share
            axes.plot([size], [place], "o", markersize=10, color=COLOURS[name])
            axes.annotate(
                f"{in_bytes(size)}  ({share:.1%})", (size, place), (10, 0), textcoords="offset points", va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        axes.set_yticks(range(len(sizes)), [WAYS[name].label for name in reversed(sizes)])
        axes.set_xscale("log")
        table = comparison.setting["item_table_bytes"]
        axes.axvline(table, color="#595959", linestyle=":", linewidth=1.2)
        axes.set_ylim(-0.6, len(sizes) - 0.2)
        axes.annotate("item table", (table, len(sizes) - 0.55), (5, 0), textcoords="offset points", color="#595959")
        axes.set_xlim(min(sizes.values()) / 2, max(*sizes.values(), table) * 6)
        axes.grid(axis="x", color="#eeeeee")
        axes.set_axisbelow(True)
        axes.set_xlabel("bytes a device (share of the item table)")

    return _svg(draw, "log", (10, _height(comparison)))


def accuracy_over_rounds(comparison: Comparison) -> str:
    """How the accuracy grew while the attacked model was trained, and while others were rebuilt."""

    def draw(figure: Figure) -> None:
        for axes, title in zip(_row(figure, 2), ("sampled HR@10", "full NDCG@10"), strict=True):
            for name, outcome in comparison.outcomes.items():
                if outcome.curve:
                    rounds = [round_ for round_, _ in outcome.curve]
                    values = [METRICS[title](accuracy) for _, accuracy in outcome.curve]
                    style: dict[str, Any] = {"color": COLOURS[name], "marker": MARKERS.get(name, "o"), "markersize": 5}
                    axes.plot(rounds, values, label=WAYS[name].label, **style)
            axes.set_title(title)
            axes.set_xlabel("round")
            axes.grid(color="#eeeeee")
            if axes.lines:
                axes.legend(frameon=False, loc="lower right")

    return _svg(draw, "rounds", (10, 3.6))


def in_bytes(size: float) -> str:
    """A size as people read it."""
    if size < 1000:
        return f"{size:.0f} B"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def _height(comparison: Comparison) -> float:
    return 0.9 + 0.34 * len(comparison.outcomes)


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])


def _bars(axes: Axes, values: Mapping[str, float], *, names: bool) -> BarContainer:
    """Horizontal bars, the first on top."""
    shown = list(values)[::-1]
    bars = axes.barh(range(len(shown)), [values[name] for name in shown], color=[COLOURS[name] for name in shown])
    axes.set_yticks(range(len(shown)), [WAYS[name].label for name in shown] if names else [""] * len(shown))
    axes.tick_params(axis="y", length=0)
    return bars


def _values_inside(axes: Axes, values: Mapping[str, float]) -> None:
    """Each bar's value at its foot, where no line crosses it."""
    for place, (name, value) in enumerate(reversed(list(values.items()))):
        colour = "#111111" if name in PALE else "white"
        axes.annotate(
            f"{value:.1f}", (0, place), (6, 0), textcoords="offset points", va="center", color=colour, fontweight="bold"
        )


def paint(draw: Callable[[Figure], None], inches: tuple[float, float], kind: str = "svg") -> bytes:
    """A figure as a file, svg or png, without a date or anything else that would differ the next time."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        file = BytesIO()
        figure.savefig(file, format=kind, dpi=DPI, metadata=dict.fromkeys(UNSAID[kind]))
    return file.getvalue()


def _svg(draw: Callable[[Figure], None], name: str, inches: tuple[float, float]) -> str:
    """A figure as an ``<svg>`` element that needs nothing from elsewhere, its ids its own within a page."""
    text = paint(draw, inches).decode()
    element = text[text.index("<svg") :]
    element = re.sub(r' xmlns(:xlink)?="[^"]*"', "", element)
    element = re.sub(r' width="[^"]*pt" height="[^"]*pt"|(?<=<svg) height="[^"]*pt"', "", element, count=1)
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", element)
