"""Plots: the figures of the studies and of the report. matplotlib is imported only to draw."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import product
from typing import TYPE_CHECKING, Any

import polars as pl

from fedforget.experiments.studies import SELECTIONS, STUDIES
from fedforget.experiments.summary import PLACE, study_rows
from fedforget.experiments.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colour-blind safe palette of Okabe and Ito; grey for the reference.
_PALETTE = "#d55e00 #cc79a7 #e69f00 #595959 #a6a6a6 #f0e442 #56b4e9 #0072b2 #009e73"
COLOURS = dict(zip(VARIANTS, _PALETTE.split(), strict=True))
#: Colour, marker and line of curves that are not variants.
CURVES = {
    "importance": ("#0072b2", "o", "-"),
    "mixed": ("#0072b2", "o", "-"),
    "random": ("#e69f00", "s", "--"),
    "user": ("#009e73", "^", "-."),
    "item": ("#cc79a7", "D", ":"),
} | {variant.label: (COLOURS[name], "o", "-") for name, variant in VARIANTS.items()}
MARKERS = "oDs^v"
LABELS = {"sampled_hr": "sampled HR@10, %", "sampled_ndcg": "sampled NDCG@10, %"}
PARTS = {
    "share_log_bytes": "everything",
    "share_log_rows_bytes": "item rows alone",
    "share_formula_bytes": "the paper's formula",
    "paper_share": "the paper",
}
AXES = {"alpha": "α, fraction of stored rows", "beta": "β, fraction of negatives", "lambda": "λ, fraction of epochs"}
INK, FAINT = "#222222", "#eeeeee"
STYLE: Any = {
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedforget",
}
#: Metadata that matplotlib would add to a file.
METADATA = {"svg": ("Date", "Creator", "Format", "Type"), "png": ("Software",)}


def svg_element(data: bytes, name: str) -> str:
    """An SVG file as an element of an HTML page, with its ids prefixed by a name."""
    text = data.decode()
    element = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text[text.index("<svg") :])
    element = re.sub(r' width="[^"]*pt" height="[^"]*pt"|(?<=<svg) height="[^"]*pt"', "", element, count=1)
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", element)


def variant_plot(points: pl.DataFrame, kind: str = "svg", *, log: bool = False, line: float | None = None) -> bytes:
    """Points on a line for each variant, with a panel for each ``panel`` and ``xlabel``.

    ``points`` has the columns panel, xlabel, way, series, lane (position within the line), x, err and label. The series
    "the paper" is drawn as a tick. ``line`` draws a vertical line.
    """
    ways = [name for name in VARIANTS if name in set(points["way"])]
    lanes = int(points["lane"].max()) + 1  # type: ignore[arg-type]
    series = points["series"].unique(maintain_order=True)
    ours = [name for name in series if not name.startswith("the paper")]
    markers = {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(ours)}
    markers = {name: markers.get(name, "|" if name == "the paper" else "x") for name in series}

    def draw(axes: Axes, part: pl.DataFrame, *, first: bool) -> None:
        axes.set_yticks(range(len(ways)), [VARIANTS[name].label if first else "" for name in reversed(ways)])
        axes.set_ylim(-0.6, len(ways) - 0.4)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=FAINT)
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if line is not None:
            axes.axvline(line, color=INK, linestyle=":", linewidth=1.2)
        for x, err, way, lane, name, label in part.select("x", "err", "way", "lane", "series", "label").iter_rows():
            y = len(ways) - 1 - ways.index(way) + 0.4 * ((lanes - 1) / 2 - lane) / lanes
            colour, width, size = (COLOURS[way], 0.7, 7) if name in ours else (INK, 1.8, 9)
            edge: Any = {"markeredgecolor": INK, "markeredgewidth": width, "ecolor": INK, "capsize": 2.5}
            axes.errorbar([x], [y], xerr=err, fmt=markers[name], color=colour, markersize=size, **edge)
            axes.annotate(label, (x, y), (8, 0), textcoords="offset points", va="center", fontsize=9)
        axes.margins(x=0.25 if part["label"].str.len_chars().max() else 0.08)

    height = 1.0 + 0.2 * len(ways) * (1 + min(lanes, 2))
    return _panels(points, "xlabel", draw, height, kind, markers)


def curve_plot(points: pl.DataFrame, kind: str = "svg") -> bytes:
    """Curves with a panel for each ``panel`` and ``ylabel``.

    ``points`` has the columns panel, xlabel, ylabel, series, x, y and err; a series without x is a horizontal line.
    """

    def draw(axes: Axes, part: pl.DataFrame, *, first: bool) -> None:
        for (name,), curve in part.group_by("series", maintain_order=True):
            if curve["x"].null_count():
                axes.axhline(curve["y"][0], color=INK, linestyle=":", linewidth=1.4, label=str(name))
                continue
            colour, marker, line = CURVES.get(str(name)) or (None, "o", "-")
            style: Any = {"color": colour, "marker": marker, "linestyle": line, "markersize": 6, "capsize": 2.5}
            axes.errorbar(curve["x"], curve["y"], yerr=curve["err"].fill_null(0.0), label=str(name), **style)
        axes.set_ylabel(part["ylabel"][0] if first else "")
        axes.grid(color=FAINT)

    return _panels(points, "ylabel", draw, 2.8, kind)


def curve_points(rows: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    """The frame of ``curve_plot`` from rows."""
    names, numbers = ["panel", "xlabel", "ylabel", "series"], ["x", "y", "err"]
    return pl.DataFrame(list(rows), dict.fromkeys(names, pl.String) | dict.fromkeys(numbers, pl.Float64), orient="row")


def _panels(
    points: pl.DataFrame,
    row_label: str,
    draw: Callable[..., None],
    height: float,
    kind: str,
    markers: dict[str, str] | None = None,
) -> bytes:
    """A figure with a column for each ``panel``, a row for each label, and one legend: of the markers, or the curves.

    The same points give the same bytes.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns, rows = (points[name].unique(maintain_order=True).to_list() for name in ("panel", row_label))
    inches = max(7.0, 1.6 + 3.4 * len(columns)), height * len(rows) + 0.4
    file = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        grid = figure.subplots(len(rows), len(columns), squeeze=False)
        for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
            part, axes = points.filter(pl.col("panel") == column, pl.col(row_label) == row), grid[i][j]
            if part.height:
                draw(axes, part, first=j == 0)
                axes.set_xlabel(part["xlabel"][0])
            axes.set_title(column if i == 0 else "")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if markers is not None:
            style: Any = {"linestyle": "", "color": "#999999", "markeredgecolor": INK, "markersize": 7}
            handles, labels = [Line2D([], [], marker=marker, **style) for marker in markers.values()], list(markers)
        if len(labels) > 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(file, format=kind, dpi=120, metadata=dict.fromkeys(METADATA[kind]))
    return file.getvalue()


def in_bytes(size: float) -> str:
    """A size in B, kB or MB."""
    if size < 1000:
        return f"{size:.0f} B"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def study_plots(summary: pl.DataFrame) -> Iterator[tuple[str, bytes]]:
    """An SVG and a PNG file for every study that has results."""
    for study in STUDIES:
        rows = study_rows(summary, study)
        for kind in METADATA if rows.height else ():
            if study in AXES:
                yield f"{study}.{kind}", curve_plot(_curves(study, rows), kind)
            elif study == "storage":
                yield f"{study}.{kind}", variant_plot(_sizes(rows), kind, log=True, line=100.0)
            else:
                points = _accuracies(rows) if study == "table-1" else _times(rows)
                yield f"{study}.{kind}", variant_plot(points, kind)


def _accuracies(rows: pl.DataFrame) -> pl.DataFrame:
    labels = LABELS | {"paper_hr": LABELS["sampled_hr"], "paper_ndcg": LABELS["sampled_ndcg"]}
    from_paper = pl.col("metric").str.starts_with("paper")
    series = pl.when(from_paper).then(pl.lit("the paper")).otherwise(pl.format("{} malicious users", "share"))
    shown = rows.filter(pl.col("metric").is_in(list(labels))).with_columns(pl.col("mean", "std") * 100)
    return _points(shown, series, pl.col("metric").replace(labels)).sort(pl.col("series") == "the paper")


def _times(rows: pl.DataFrame) -> pl.DataFrame:
    ratio = rows.filter(pl.col("metric") == "ratio").select("place", "way", ratio=pl.col("mean").round(1))
    times = rows.filter(pl.col("metric") == "seconds").join(
        ratio, on=["place", "way"], how="left", maintain_order="left"
    )
    seconds = pl.format("{} s", pl.col("mean").round(1))
    label = pl.when(pl.col("ratio").is_null()).then(seconds).otherwise(pl.format("{} ({}x)", seconds, "ratio"))
    return _points(times, pl.format("{} malicious users", "share"), pl.lit("seconds (against Retrain)"), label)


def _sizes(rows: pl.DataFrame) -> pl.DataFrame:
    """Sizes in percent of the item table. The formula is for the paper's own FRU."""
    part = pl.col("metric").replace(PARTS)
    shown = rows.filter(
        pl.col("metric").is_in(list(PARTS)),
        (pl.col("metric") != "share_formula_bytes") | (pl.col("way") == "fru-server"),
    )
    shown = shown.with_columns(pl.col("mean") * 100, std=pl.lit(None, pl.Float64), share=part.str.head(9))
    return _points(shown, part, pl.lit("% of the item table"))


def _points(rows: pl.DataFrame, series: pl.Expr, xlabel: pl.Expr, label: pl.Expr | None = None) -> pl.DataFrame:
    return rows.select(
        pl.col("pair").alias("panel"),
        "way",
        series.alias("series"),
        xlabel=xlabel,
        lane=pl.col("share").rank("dense").cast(pl.Int64) - 1,
        x="mean",
        err="std",
        label=pl.lit("") if label is None else label,
    )


def _curves(study: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Curves over α, β or λ, and a horizontal line for Retrain."""
    retrain = pl.col("way") == "retrain"
    timed = rows.filter(pl.col("metric") == "ratio", ~retrain).group_by(*PLACE, "way").len()["len"].to_list()
    labels = LABELS | ({"ratio": "times as fast as Retrain"} if study == "lambda" and max(timed, default=0) > 1 else {})
    series = {"alpha": pl.col("selection"), "beta": pl.col("sampler"), "lambda": pl.col("variant")}[study]
    scale = pl.when(pl.col("metric") == "ratio").then(1.0).otherwise(100.0)
    curves = rows.filter(pl.col("metric").is_in(list(labels))).select(
        pl.col("place").alias("panel"),
        ylabel=pl.col("metric").replace(labels),
        xlabel=pl.lit(AXES[study]),
        series=pl.when(retrain).then("variant").otherwise(series),
        x=pl.when(~retrain).then(study),
        y=scale * pl.col("mean"),
        err=scale * pl.col("std"),
    )
    every = [curves.filter(pl.col("series") == "all").with_columns(series=pl.lit(name)) for name in SELECTIONS]
    return pl.concat([curves.filter(pl.col("series") != "all"), *every]).sort("x", maintain_order=True)
