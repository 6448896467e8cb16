"""The page of an audit: verdicts, tables and plots in one self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedforget.evaluation.forgetting.verdict import MARGIN, SEES, WITHIN
from fedforget.experiments.forgetting.analysis import BEFORE_AFTER, MEMBERSHIP, OFFLINE, SNAPSHOTS
from fedforget.experiments.forgetting.cases import CASES
from fedforget.experiments.forgetting.methods import NONE, RETRAIN
from fedforget.experiments.forgetting.plots import audit_plots
from fedforget.experiments.plots import svg_element
from fedforget.experiments.report import STYLE
from fedforget.version import __version__

if TYPE_CHECKING:
    from fedforget.experiments.forgetting.audit import Audit

RULE = (
    "How a verdict is found: the audit proves something only if it sees members before the erasure (lower bound of the "
    f"AUC above {SEES}) and nobody after Retrain (its interval reaches within {MARGIN} of 0.5). What counts is the "
    "difference of the AUC after a method and after Retrain, in the same worlds. The method is still visible if the "
    "difference, with an interval widened for the number of attacks and kinds of leavers, is further than "
    f"{MARGIN} from 0, not distinguishable from Retrain if its interval lies within "
    f"±{WITHIN}, else undecided. The verdict is the worst of all kinds of leavers, from the final model and from "
    "snapshots; with a single user who leaves, a method may be visible, but too few scores say that it is not."
)
CAPTION = (
    "AUC: the probability that a user who was forgotten gets a higher score than one who was never there; 0.5 is "
    "chance. The score is a likelihood ratio of several signals, fitted on other worlds (U-LiRA); offline: RMIA. In "
    "brackets: 95% intervals over users and worlds. Found at 1%: the share of forgotten users that are found at 1% "
    "false alarms, where there are scores enough to tell. Before and after: an attacker who holds both models sees "
    "from their difference who left, whatever the method; this is no part of the verdict."
)
DISTANCES = (
    "Item tables are rotated onto each other. Furthest items: their ranks by popularity. Poison: what is left of "
    "the push of malicious users, 1 in the attacked model: how much two models that were attacked by different users "
    "still differ the same way after the method. The last line is Retrain with another seed: a method within this "
    "distance is as close as chance allows."
)
METRIC = "full_ndcg"
#: Kinds of rows: one that names the following ones, and that of Retrain.
GROUP, REFERENCE = "group", "reference"


def audit_page(audit: Audit) -> str:
    """The page of an audit."""
    settings = audit.settings
    cases = [CASES[name] for name in settings.cases]
    title = f"Audit of forgetting: {settings.config.model.name} on {Path(audit.source).name or 'data'}"
    leavers = ", ".join(CASES[name].label for name in audit.cases)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{settings.worlds} federations of {settings.train.n_users:,} users and {settings.train.n_items:,} items, "
        f"{settings.rounds} rounds, for each kind of leavers ({settings.leavers:.0%} of the users): "
        f"{escape(leavers)}.</p>",
        _verdicts(audit),
        _attacks(audit),
        *(_figure(name, data, f"plot{place}") for place, (name, data) in enumerate(audit_plots(audit).items())),
        f"<h2>Distance to Retrain: {escape(CASES[audit.headline.name].label)}</h2>",
        _distances(audit),
        "<h2>Who leaves</h2>",
        "<dl>" + "".join(f"<dt>{one.label}</dt><dd>{one.description}</dd>" for one in cases) + "</dl>",
        "<h2>Settings</h2>",
        f"<pre>{escape(json.dumps({'fedforget': __version__, **settings.describe()}, indent=1))}</pre>",
    ]
    view = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f"{view}\n<title>{escape(title)} · fedforget</title>\n<style>{STYLE}</style>"
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _verdicts(audit: Audit) -> str:
    lines = [
        f"<dt>{escape(name)}</dt><dd>{escape(audit.verdict(name).text)}</dd>"
        for name in audit.settings.methods
        if name not in (NONE, RETRAIN)
    ]
    return f"<dl>{''.join(lines)}</dl><p>{RULE}</p>"


def _attacks(audit: Audit) -> str:
    rows: list[tuple[list[str], str]] = []
    for case in audit.cases.values():
        rows.append(([CASES[case.name].label], GROUP))
        for name, found in case.found.items():
            cells = [name]
            for attack in (MEMBERSHIP, OFFLINE, SNAPSHOTS, BEFORE_AFTER):
                one = found.get(attack)
                cells.append(f"{one.auc.value:.3f} ({one.auc.low:.3f}–{one.auc.high:.3f})" if one else "–")
                if attack == MEMBERSHIP and one:
                    cells.append(f"{one.tpr.value:.1%}" if one.tpr else "–")
            rows.append((cells, _kind(name)))
    columns = ["method", "final model", "found at 1%", "offline", "all snapshots", "before and after"]
    return _table(columns, rows, CAPTION)


def _distances(audit: Audit) -> str:
    found = {name: audit.distance(audit.headline.name, name) for name in audit.settings.methods}
    rows = [(_distance_cells(name, one), _kind(name)) for name, one in found.items()]
    between = found[RETRAIN]
    seeds, accuracy = between["between_seeds"], between["accuracy"]
    poison = f"± {between['poison']['chance']:.2f}" if "poison" in between else "–"
    cells = [
        "Retrain, other seed",
        *_shares(seeds),
        "",
        *("± " + _points(a, "between_seeds") for a in accuracy.values()),
    ]
    rows.append(([*cells, poison], ""))
    groups = [f"NDCG@10, {group}" for group in accuracy]
    columns = ["", "item table", "median item", "same top 10", "furthest items", *groups, "poison"]
    return _table(columns, rows, DISTANCES)


def _distance_cells(name: str, distance: dict[str, Any]) -> list[str]:
    ranks = ", ".join(str(item["rank"]) for item in distance["worst_items"][:3])
    accuracy = [f"{100 * group[METRIC]:.1f}" for group in distance["accuracy"].values()]
    poison = f"{distance['poison']['projection']:.2f}" if "poison" in distance else "–"
    return [name, *_shares(distance), ranks if distance["items"] > 1e-6 else "–", *accuracy, poison]


def _shares(values: dict[str, float]) -> list[str]:
    return [f"{values[key]:.2f}" for key in ("items", "item_median")] + [f"{values['top_10_overlap']:.0%}"]


def _points(accuracy: dict[str, float], kind: str) -> str:
    return f"{100 * accuracy[f'{METRIC}_{kind}']:.1f}"


def _kind(name: str) -> str:
    return REFERENCE if name == RETRAIN else ""


def _table(columns: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], note: str) -> str:
    """A table of rows with their kind; a row of the kind ``GROUP`` has one cell, for those that follow."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = []
    for cells, kind in rows:
        span = f' colspan="{len(columns)}"' if kind == GROUP else ""
        shown = "".join(f"<td{span}>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr class="{kind}">{shown}</tr>' if kind else f"<tr>{shown}</tr>")
    body = "\n".join(lines)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="wide">{table}</div>\n<p class="note">{escape(note)}</p>'


def _figure(title: str, data: bytes, name: str) -> str:
    svg = svg_element(data, name).replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<h2>{escape(title)}</h2>\n<figure>\n{svg}\n</figure>"
