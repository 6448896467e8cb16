"""The page of an audit: verdicts, tables and plots in one self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedforget.evaluation.forgetting.verdict import MARGIN, SEES
from fedforget.experiments.forgetting.analysis import BEFORE_AFTER, MEMBERSHIP, SNAPSHOTS
from fedforget.experiments.forgetting.cases import CASES
from fedforget.experiments.forgetting.methods import NONE, RETRAIN
from fedforget.experiments.forgetting.plots import audit_plots
from fedforget.experiments.plots import svg_element
from fedforget.experiments.report import STYLE
from fedforget.version import __version__

if TYPE_CHECKING:
    from fedforget.experiments.forgetting.audit import Audit

RULE = (
    f"The rule: the audit proves something only if it sees members before the erasure (lower bound of the AUC above "
    f"{SEES}) and if the interval for Retrain contains 0.5. A method is not distinguishable from Retrain if its "
    f"interval lies within Retrain's ± {MARGIN}, still visible if its lower bound is above Retrain's upper bound, else "
    "undecided."
)
CAPTION = (
    "AUC of the best combination of signals that was fitted on other worlds (U-LiRA), with 95% intervals over users "
    "and worlds, and the true-positive rate at 1% false positives. 0.5 is chance. Before and after: an attacker who "
    "holds both models sees from their difference who left, whatever the method; the figure is no part of the verdict."
)
DISTANCES = (
    "Item tables are rotated onto each other. Ranks: the items furthest from Retrain, by popularity. Poison: the "
    "projection of (method − Retrain) on (attacked − Retrain), with malicious leavers. The last line is Retrain with "
    "another seed: closer than that no method need be."
)
METRIC = "full_ndcg"


def audit_page(audit: Audit) -> str:
    """The page of an audit."""
    settings = audit.settings
    title = f"Audit of forgetting: {settings.config.model.name}"
    shown = f"{settings.worlds} worlds for each of {len(audit.cases)} kinds of leavers, {settings.leavers:.0%} of"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{shown} {settings.train.n_users:,} users, {settings.rounds} rounds. Headline: "
        f"{escape(CASES[audit.headline.name].label)}, whose memory is seen best before the erasure.</p>",
        _verdicts(audit),
        _attacks(audit),
        *(_figure(name, data, f"plot{place}") for place, (name, data) in enumerate(audit_plots(audit).items())),
        "<h2>Distance to Retrain</h2>",
        _distances(audit),
        "<h2>Who leaves</h2>",
        "<dl>" + "".join(f"<dt>{case.label}</dt><dd>{case.description}</dd>" for case in CASES.values()) + "</dl>",
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
        if name != NONE
    ]
    return f"<dl>{''.join(lines)}</dl><p>{RULE}</p>"


def _attacks(audit: Audit) -> str:
    rows = []
    for case in audit.cases.values():
        for name, found in case.found.items():
            cells = [CASES[case.name].label if name == NONE else "", name]
            for attack in (MEMBERSHIP, SNAPSHOTS, BEFORE_AFTER):
                one = found.get(attack)
                cells.append(f"{one.auc.value:.3f} ({one.auc.low:.3f}–{one.auc.high:.3f})" if one else "–")
                if attack == MEMBERSHIP and one:
                    cells.append(f"{one.tpr.value:.1%}")
            rows.append((cells, name == RETRAIN))
    return _table(["", "method", "final model", "TPR at 1%", "all snapshots", "before and after"], rows, CAPTION)


def _distances(audit: Audit) -> str:
    rows, methods = [], audit.to_dict()["methods"]
    for name, result in methods.items():
        rows.append((_distance_cells(name, result["distance"]), name == RETRAIN))
    between = next(iter(methods.values()))["distance"]
    seeds, accuracy = between["between_seeds"], between["accuracy"]
    poison = f"{between['poison']['between_seeds']:.2f}" if "poison" in between else "–"
    cells = [
        "Retrain, other seed",
        *_shares(seeds),
        "",
        *("± " + _points(a, "between_seeds") for a in accuracy.values()),
    ]
    rows.append(([*cells, poison], False))
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


def _table(columns: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]], caption: str) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = []
    for cells, reference in rows:
        kind = ' class="reference"' if reference else ""
        lines.append(f"<tr{kind}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    body = "\n".join(lines)
    caption = f"<caption>{escape(caption)}</caption>"
    return f"<table>\n{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _figure(title: str, data: bytes, name: str) -> str:
    svg = svg_element(data, name).replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<h2>{escape(title)}</h2>\n<figure>\n{svg}\n</figure>"
