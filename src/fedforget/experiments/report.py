"""Report: a comparison as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from fedforget.experiments.forgetting.plots import score_panels
from fedforget.experiments.plots import COLOURS, curve_plot, curve_points, in_bytes, svg_element, variant_plot
from fedforget.experiments.variants import VARIANTS

STYLE = """
body { max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; color: #222;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 1.75rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .36rem .55rem; text-align: right; border-bottom: 1px solid #e5e5e5; }
td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #999; } tr.reference td { background: #f5f5f5; }
caption { caption-side: bottom; text-align: left; color: #555; padding-top: .5rem; font-size: .88rem; }
figure { margin: .5rem 0 0; } figure svg { width: 100%; height: auto; display: block; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
pre { background: #f6f6f6; padding: .8rem 1rem; overflow-x: auto; font-size: .88rem; }
.wide { overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #17191d; color: #ddd; } caption, .facts td:first-child { color: #aaa; }
  th, td { border-color: #333; } tr.reference td, pre { background: #22252b; }
  figure svg { background: #fff; border-radius: 6px; } a { color: #8ab4f8; }
}
.facts td { text-align: left; white-space: normal; } .facts td:first-child { color: #555; width: 14rem; }
"""
COLUMNS = ["", "sampled HR@10", "NDCG@10", "full HR@10", "NDCG@10", "recall@10"]
COLUMNS += ["seconds", "speed-up", "log per device", "of the item table"]
CAPTION = (
    "Accuracy of the remaining users in percent; sampled: each test item is ranked among 99 others, full: among all "
    "items. Seconds: unlearning without evaluation. Log: everything a device stores for unlearning. Retrain is the "
    "reference: a model that was trained without the malicious users."
)


def html_report(comparison: Mapping[str, Any], commands: Sequence[str] = ()) -> str:
    """The page for a comparison as ``fedforget quickstart`` saves it; ``commands`` are shown as next steps."""
    setting = comparison["setting"]
    title = f"Forgetting {setting['malicious_users']:,} malicious users of {setting['users']:,}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(str(setting['data']))}, {setting['model']['name']}, {setting['rounds']} rounds</p>",
        _table(comparison),
        *(_figure(name, data, f"plot{place}") for place, (name, data) in enumerate(_plots(comparison).items())),
        *([_memory(comparison["audit"])] if comparison["audit"] else []),
        "<h2>Methods</h2>",
        _methods(comparison["methods"]),
        "<h2>Settings</h2>",
        _facts({**setting, **comparison["machine"]}),
    ]
    if commands:
        parts += ["<h2>Next steps</h2>", f"<pre>{escape(chr(10).join(commands))}</pre>"]
    head = f"<title>{escape(title)} · fedforget</title>\n<style>{STYLE}</style>"
    view = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en">\n<head>\n{view}\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _table(comparison: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = [_row("Most popular items", comparison["most popular"])]
    rows += [_row(VARIANTS[name].label, outcome, name) for name, outcome in comparison["methods"].items()]
    rows += [_row(f"Fed-iALS, {VARIANTS[name].label}", outcome) for name, outcome in comparison["ials"].items()]
    body = "\n".join(rows)
    table = (
        f"<table>\n<caption>{CAPTION}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
    return f'<div class="wide">{table}</div>'


def _row(label: str, outcome: Mapping[str, Any], name: str = "") -> str:
    cells = [f"{100 * value:.1f}" for value in (*outcome["sampled"].values(), *outcome["full"].values())]
    cells += [f"{outcome['seconds']:.1f}" if outcome.get("seconds") else "–"]
    cells += [f"{outcome['speedup']:.1f}x" if outcome.get("speedup") else "–"]
    cells += _log(outcome["log"]) if "log" in outcome else ["–", "–"]
    kind = ' class="reference"' if name == "retrain" else ""
    return f"<tr{kind}><td>{_swatch(name)}{escape(label)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _log(log: Mapping[str, float]) -> list[str]:
    return [in_bytes(log["total"]), f"{log['total'] / log['item_table']:.1%}"]


def _swatch(name: str) -> str:
    return f'<span class="swatch" style="background:{COLOURS[name]}"></span>' if name else ""


def _figure(title: str, data: bytes, name: str) -> str:
    svg = svg_element(data, name).replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<h2>{escape(title)}</h2>\n<figure>\n{svg}\n</figure>"


def _memory(audit: Mapping[str, Any]) -> str:
    """What an attacker sees in the models of a small audit (``forgetting.demonstration``)."""
    labels = {
        "none": "before the erasure",
        "continue": "after Continue",
        "fru": "after FRU",
        "retrain": "after Retrain",
    }
    titles = {name: f"{labels[name]}: AUC {found['auc']:.2f}" for name, found in audit["methods"].items()}
    scores = {name: (np.array(one["took_part"]), np.array(one["absent"])) for name, one in audit["methods"].items()}
    ends = ", ".join(f"{labels[name]} {one['low']:.2f}–{one['high']:.2f}" for name, one in audit["methods"].items())
    about = (
        "An attacker gives every user a score: the higher, the more likely the user took part. Where both shapes lie "
        "on each other, the attacker cannot tell. AUC: the probability that a user who took part has the higher score "
        f"of two; 0.5 is chance. {audit['worlds']} federations"
        f" of {audit['data']['users']} synthetic users, LightGCN, {audit['rounds']} rounds; the {audit['leaving']} "
        f"leave. 95% intervals of the AUC: {ends}. Eight federations are enough to see that a model remembers; to "
        "compare methods use "
    )
    title = "Does a model remember who was forgotten? An example with synthetic users"
    command = "<code>fedforget audit forgetting</code>"
    return f"{_figure(title, score_panels(scores, titles), 'memory')}\n<p>{escape(about)}{command}.</p>"


def _methods(names: Iterable[str]) -> str:
    chosen = [(name, VARIANTS[name]) for name in names]
    entries = (f"<dt>{_swatch(n)}{escape(v.label)}</dt><dd>{escape(v.description)}</dd>" for n, v in chosen)
    return "<dl>" + "\n".join(entries) + "</dl>"


def _facts(values: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, Mapping):
            return ", ".join(f"{key} {shown(part)}" for key, part in value.items())
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    cells = [(escape(name.replace("_", " ")), escape(shown(value))) for name, value in values.items()]
    return '<table class="facts">' + "\n".join(f"<tr><td>{a}</td><td>{b}</td></tr>" for a, b in cells) + "</table>"


def _plots(comparison: Mapping[str, Any]) -> dict[str, bytes]:
    """The plots by their titles."""
    accuracies, times, sizes = [], [], []
    for way, outcome in comparison["methods"].items():
        log, seconds, speedup = outcome["log"], outcome["seconds"], outcome["speedup"]
        accuracies += [(panel, "%", way, value, f"{value:.1f}") for panel, value in _percentages(outcome).items()]
        sizes.append(("", "bytes (share of the item table)", way, log["total"], "{} ({})".format(*_log(log))))
        if VARIANTS[way].method is not None:
            label = f"{seconds:.1f} s " + (f"{speedup:.1f}x" if speedup else "")
            times.append(("", "seconds (speed-up over Retrain)", way, seconds, label))
    curves = [
        (panel, "round", "%", VARIANTS[way].label, point["round"], _percentages(point)[panel], None)
        for panel in ("sampled HR@10", "full NDCG@10")
        for way, curve in comparison["curves"].items()
        for point in curve
    ]
    table = comparison["setting"]["item_table_bytes"]
    return {
        "Accuracy (percent)": variant_plot(_points(accuracies)),
        "Time of unlearning": variant_plot(_points(times)),
        "Log size per device (dotted: item table)": variant_plot(_points(sizes), log=True, line=table),
        "Accuracy over rounds": curve_plot(curve_points(curves)),
    }


def _percentages(accuracy: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """HR and NDCG in both protocols, in percent."""
    pairs = product(("sampled", "full"), ("hr", "ndcg"))
    return {f"{protocol} {metric.upper()}@10": 100 * accuracy[protocol][metric] for protocol, metric in pairs}


def _points(rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    points = pl.DataFrame(rows, ["panel", "xlabel", "way", "x", "label"], orient="row")
    return points.with_columns(series=pl.lit(""), lane=pl.lit(0), err=pl.lit(None, pl.Float64))
