"""Report: one HTML file that shows a comparison and needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedforget.experiments import plots
from fedforget.experiments.comparison import Comparison
from fedforget.experiments.outcome import Accuracy, Outcome
from fedforget.experiments.ways import WAYS

STYLE = """
body { max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; color: #222; background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; }
.lead { font-size: 1.08rem; color: #333; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .36rem .55rem; text-align: right; border-bottom: 1px solid #e5e5e5; }
td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #999; font-weight: 600; }
tr.reference td { background: #f5f5f5; }
caption { caption-side: bottom; text-align: left; color: #555; padding-top: .5rem; font-size: .88rem; }
figure { margin: .5rem 0 0; } figure svg { width: 100%; height: auto; display: block; }
figcaption { color: #555; font-size: .88rem; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0; color: #333; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
pre { background: #f6f6f6; padding: .8rem 1rem; overflow-x: auto; border-radius: 4px; font-size: .88rem; }
.facts td { text-align: left; white-space: normal; } .facts td:first-child { color: #555; width: 14rem; }
"""
COLUMNS = (
    "", "sampled HR@10", "NDCG@10", "full HR@10", "NDCG@10", "recall@10", "seconds", "speed-up", "log a device",
    "of the item table",
)  # fmt: skip
CAPTION = (
    "Accuracy in percent, over those who stay only. sampled: each test item against 99 others; full: against all "
    "items. Seconds of unlearning, evaluation excluded, all in one run side by side. Log: everything a device keeps "
    "for unlearning. Retrain is also the clean reference: it is what a federation that never had the malicious users "
    "would have learned from the same cohorts."
)


def html_report(comparison: Comparison, commands: Sequence[str] = ()) -> str:
    """The whole page; ``commands`` are what its reader may want to run next."""
    setting = comparison.setting
    title = f"Forgetting {setting['malicious_users']:,} malicious users of {setting['users']:,}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_lead(comparison))}</p>',
        _table(comparison),
        _figure("Accuracy by method", plots.accuracy_by_method(comparison), "Percent; the dotted line is Retrain."),
        _figure("Time by method", plots.time_by_method(comparison), "Wall clock of unlearning alone."),
        _figure(
            "Size of the log on a device",
            plots.log_by_method(comparison),
            "The scale is logarithmic. The item table is what every device has to receive anyway.",
        ),
        _figure(
            "Accuracy over rounds",
            plots.accuracy_over_rounds(comparison),
            "Of those who stay: while the attacked model was trained, and while it was rebuilt without the others.",
        ),
        "<h2>The methods</h2>",
        _methods(comparison.outcomes),
        "<h2>Settings</h2>",
        _facts({**setting, **comparison.machine}),
    ]
    if commands:
        parts += ["<h2>Go on</h2>", f"<pre>{escape(chr(10).join(commands))}</pre>"]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · fedforget</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _lead(comparison: Comparison) -> str:
    """The result in two sentences, as far as the methods it speaks of are there."""
    setting, outcomes = comparison.setting, comparison.outcomes
    text = (
        f"{setting['model']['name']} was trained on {setting['data']} for {setting['rounds']} rounds while "
        f"{setting['malicious']:.0%} of the users sent flipped and noisy updates; then those users were forgotten."
    )
    if {"attacked", "retrain", "fru-device"} <= set(outcomes):
        attacked, retrain, fru = (outcomes[name] for name in ("attacked", "retrain", "fru-device"))
        text += (
            f" HR@10 (sampled) was {_percent(attacked.accuracy)} under attack, is {_percent(retrain.accuracy)} after "
            f"training everything again and {_percent(fru.accuracy)} after FRU on the devices, which was "
            f"{fru.speedup or 0:.1f} times as fast and needs {plots.in_bytes(fru.log.total)} of log on each."
        )
    return text


def _percent(accuracy: Accuracy) -> str:
    return f"{100 * accuracy.sampled['hr']:.1f}"


def _table(comparison: Comparison) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in COLUMNS)
    rows = [_row("Most popular items", comparison.popular, None)]
    rows += [_row(WAYS[name].label, outcome.accuracy, outcome, name) for name, outcome in comparison.outcomes.items()]
    rows += [_row(f"Fed-iALS, {WAYS[name].label}", found.accuracy, found) for name, found in comparison.ials.items()]
    return (
        f"<table>\n<caption>{escape(CAPTION)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody>\n</table>"
    )


def _row(label: str, accuracy: Accuracy, outcome: Outcome | None, name: str = "") -> str:
    cells = [f"{100 * value:.1f}" for value in (*accuracy.sampled.values(), *accuracy.full.values())]
    if outcome is None:
        cells += ["–"] * 4
    else:
        cells += [
            f"{outcome.seconds:.1f}" if outcome.seconds else "–",
            f"{outcome.speedup:.1f}x" if outcome.speedup else "–",
            plots.in_bytes(outcome.log.total),
            f"{outcome.log.share:.1%}",
        ]
    kind = ' class="reference"' if name == "retrain" else ""
    figures = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr{kind}><td>{_swatch(name)}{escape(label)}</td>{figures}</tr>"


def _swatch(name: str) -> str:
    return f'<span class="swatch" style="background:{plots.COLOURS[name]}"></span>' if name else ""


def _figure(title: str, svg: str, caption: str) -> str:
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return f"<h2>{escape(title)}</h2>\n<figure>\n{drawn}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def _methods(names: Mapping[str, Any]) -> str:
    entries = (
        f"<dt>{_swatch(name)}{escape(WAYS[name].label)}</dt><dd>{escape(WAYS[name].about)}</dd>" for name in names
    )
    return "<dl>" + "\n".join(entries) + "</dl>"


def _facts(values: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, Mapping):
            return ", ".join(f"{key} {shown(part)}" for key, part in value.items())
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    rows = (
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{escape(shown(value))}</td></tr>"
        for name, value in values.items()
    )
    return '<table class="facts">' + "\n".join(rows) + "</table>"
