"""The plots of an audit: AUC by case, score distributions, ROC, and distances to Retrain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.evaluation.forgetting.scores import Floats, tpr_at
from fedforget.experiments.forgetting.analysis import MEMBERSHIP, SNAPSHOTS
from fedforget.experiments.forgetting.cases import CASES
from fedforget.experiments.forgetting.methods import ALIASES, NONE, RETRAIN
from fedforget.experiments.plots import COLOURS, FAINT, INK, MARKERS, METADATA, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedforget.experiments.forgetting.audit import Audit

#: Scores that cannot resolve this false-positive rate show nothing in a ROC curve of low rates.
LOW_RATE = 0.1
#: The false-positive rates of a ROC curve.
RATES = np.concatenate([[0.0], np.geomspace(1e-3, 1, 60)])


def audit_plots(audit: Audit) -> dict[str, bytes]:
    """All plots by their titles, as SVG."""
    plots = {
        "Can an attacker tell who took part? AUC with 95% intervals": auc_plot(audit),
        f"Scores of {CASES[audit.headline.name].label}: the higher, the more like members": score_plot(audit),
    }
    if audit.headline.found[NONE][MEMBERSHIP].scores.smallest_rate <= LOW_RATE:
        plots["ROC with low false-positive rates"] = roc_plot(audit)
    return {**plots, "Distance to Retrain (dotted: Retrain with another seed)": distance_plot(audit)}


def auc_plot(audit: Audit) -> bytes:
    """The AUC of each method by case, for the final model and for all snapshots."""
    names = list(audit.settings.methods)

    def draw(axes: Axes, attack: str, *, first: bool) -> None:
        cases = list(audit.cases.values())
        for place, case in enumerate(cases):
            shift = 0.6 * (place / (len(cases) - 1) - 0.5) if len(cases) > 1 else 0.0
            for row, name in enumerate(reversed(names)):
                area = case.found[name][attack].auc
                error = [[area.value - area.low], [area.high - area.value]]
                label = CASES[case.name].label if row == 0 else None
                axes.errorbar([area.value], [row - shift], xerr=error, label=label, **_BARS, **_marker(place, name))
        axes.axvline(0.5, color=INK, linestyle=":", linewidth=1.2)
        axes.set(title=_ATTACKERS[attack], xlabel="AUC", xlim=(lowest, 1.03))
        axes.set_yticks(range(len(names)), list(reversed(names)) if first else [""] * len(names))
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.grid(axis="x", color=FAINT)
        if first:
            axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)

    ends = [case.found[name][attack].auc.low for case in audit.cases.values() for name in names for attack in _SEEN]
    lowest = min(0.35, *(end - 0.03 for end in ends))
    return _figure(list(_SEEN), draw, (10.0, 1.6 + 0.55 * len(names)))


def score_plot(audit: Audit) -> bytes:
    """Distributions of the scores after each method in the headline case."""
    found = {name: one[MEMBERSHIP].scores for name, one in audit.headline.found.items()}
    return score_panels({name: (one.value[one.inside], one.value[~one.inside]) for name, one in found.items()})


def score_panels(scores: Mapping[str, tuple[Floats, Floats]], titles: Mapping[str, str] | None = None) -> bytes:
    """Distributions of scores by method: of users who took part (and were forgotten), and of users never there.

    Scores are logarithms of likelihood ratios; the axis is logarithmic far from 0.
    """
    names, titles = list(scores), titles or {}
    spread = {name: tuple(np.arcsinh(part) for part in both) for name, both in scores.items()}
    ends = [float(end) for end in np.quantile(np.concatenate(sum(spread.values(), ())), [0.001, 0.999])]
    bins = np.linspace(ends[0], ends[1], 60).tolist()

    def draw(axes: Axes, name: str, *, first: bool) -> None:
        label = "took part" if name == NONE else "forgotten"
        for part, style in zip(spread[name], ({"color": _colour(name), "label": label}, _OUTLINE), strict=True):
            axes.hist(np.clip(part, ends[0], ends[1]), bins, density=True, histtype="stepfilled", **style)
        ticks = [tick for tick in (-100, -10, -1, 0, 1, 10, 100, 1000) if ends[0] <= np.arcsinh(tick) <= ends[1]]
        axes.set_xticks(np.arcsinh(ticks).tolist(), [str(tick) for tick in ticks])
        axes.set(title=titles.get(name, name), xlabel="score (logarithmic beyond ±1)", yticks=[])
        axes.set_ylabel("share of users")
        axes.legend(frameon=False, fontsize=8)

    columns = 3 if len(names) > 4 else 2
    return _figure(names, draw, (10.0, 2.6 * -(-len(names) // columns)), columns=columns)


def roc_plot(audit: Audit) -> bytes:
    """True-positive over false-positive rates of the headline case, both axes logarithmic."""

    def draw(axes: Axes, attack: str, *, first: bool) -> None:
        least = audit.headline.found[NONE][attack].scores.smallest_rate
        for name in audit.settings.methods:
            scores = audit.headline.found[name][attack].scores
            true = [float(tpr_at(scores, rate)[0]) for rate in RATES]
            axes.plot(np.maximum(RATES, 1e-4), true, color=_colour(name), label=name)
        axes.plot([1e-4, 1], [1e-4, 1], color=INK, linestyle=":", linewidth=1.2)
        axes.set(title=_ATTACKERS[attack], xlabel="false-positive rate", xscale="log", yscale="log")
        axes.set(xlim=(min(max(least, 1e-3), 0.1), 1), ylim=(1e-3, 1.05), ylabel="true-positive rate" if first else "")
        axes.grid(color=FAINT)
        if first:
            axes.legend(frameon=False, fontsize=8)

    return _figure(list(_SEEN), draw, (10.0, 3.6))


def distance_plot(audit: Audit) -> bytes:
    """How far each method's model is from Retrain, beside Retrain with another seed."""
    names = [name for name in audit.settings.methods if name != RETRAIN]
    found = {name: audit.distance(audit.headline.name, name) for name in names}

    def draw(axes: Axes, key: str, *, first: bool) -> None:
        for row, name in enumerate(reversed(names)):
            axes.plot([found[name][key]], [row], **_marker(0, name))
        axes.axvline(found[names[0]]["between_seeds"][key], color=INK, linestyle=":", linewidth=1.4)
        axes.set(title=_DISTANCES[key], xlim=(0, None), ylim=(-0.6, len(names) - 0.4))
        axes.set_yticks(range(len(names)), list(reversed(names)) if first else [""] * len(names))
        axes.grid(axis="x", color=FAINT)

    return _figure(list(_DISTANCES), draw, (10.0, 1.0 + 0.4 * len(names)))


_BARS: Any = {"ecolor": INK, "elinewidth": 0.8, "capsize": 2}
_OUTLINE: Any = {"facecolor": "none", "edgecolor": INK, "linewidth": 1.2, "label": "never there"}
_SEEN = (MEMBERSHIP, SNAPSHOTS)
_ATTACKERS = {MEMBERSHIP: "from the final model", SNAPSHOTS: "from snapshots of all rounds"}
_DISTANCES = {
    "items": "item table, relative",
    "item_median": "median item",
    "top_10_overlap": "shared top-10 items",
}


def _marker(place: int, name: str) -> dict[str, Any]:
    """The style of a point: its shape for the case, its colour for the method."""
    style = {"marker": MARKERS[place % len(MARKERS)], "color": _colour(name), "linestyle": "", "markersize": 6}
    return {**style, "markeredgecolor": INK, "markeredgewidth": 0.6}


def _colour(name: str) -> str:
    base = name.split(":")[0]
    return COLOURS.get(ALIASES.get(base, base), INK)


def _figure(
    panels: list[str], draw: Callable[..., None], inches: tuple[float, float], columns: int | None = None
) -> bytes:
    """A figure with a panel for each name; the same audit gives the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = columns or len(panels)
    rows, file = -(-len(panels) // columns), BytesIO()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for place, axes in enumerate(grid):
            if place < len(panels):
                draw(axes, panels[place], first=place % columns == 0)
            else:
                axes.set_axis_off()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(METADATA["svg"]))
    return file.getvalue()
