"""Tables: the figures of each study in Markdown, with the paper's beside them.

Accuracies are HR@10 / NDCG@10 in percent, mean ± standard deviation over seeds; without ± there is one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from fedforget.device.sampling import KINDS
from fedforget.experiments.plots import in_bytes
from fedforget.experiments.ways import WAYS
from fedforget.models import build_model
from fedforget.reproduction import coverage, paper
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.labels import (
    NOTHING,
    PROTOCOLS,
    pair_of,
    place_of,
    printed_of,
    share_of,
    signed,
    spread_of,
    way_of,
)
from fedforget.reproduction.studies import REPLAYS, SELECTIONS
from fedforget.reproduction.summary import RETRAIN, Group, Place, Summary


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar inside a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def accuracy_tables(summary: Summary) -> str:
    """Table 1: for each data set and model the accuracies of every way, then how far each is from Retrain."""
    parts = []
    for pair, group in groupby(coverage.places(summary, "table-1"), pair_of):
        places = list(group)
        ways = [way for way in WAYS if any(_measured(summary, place, way) for place in places)]
        parts += [f"**{pair}**", _accuracies(summary, places, ways), _gaps(summary, places, ways)]
    return "\n\n".join(parts)


def _measured(summary: Summary, place: Place, way: str) -> bool:
    return summary.of(Group(place, Treatment(way)), "sampled_hr") is not None


def _accuracies(summary: Summary, places: Sequence[Place], ways: Sequence[str]) -> str:
    heads = [f"{place.malicious:.0%}, {what}" for place in places for what in (*PROTOCOLS, "the paper")]
    rows = []
    for way in ways:
        cells = [way_of(way)]
        for place in places:
            group = Group(place, Treatment(way))
            cells += [_accuracy(summary, group, protocol) for protocol in PROTOCOLS]
            cells.append(_both(_printed(place, way), printed_of))
        rows.append(cells)
    return markdown(["malicious", *heads], rows)


def _gaps(summary: Summary, places: Sequence[Place], ways: Sequence[str]) -> str:
    """Every way minus Retrain: ours in both protocols, and the paper's own."""
    heads = [f"{place.malicious:.0%}, {what}" for place in places for what in (*PROTOCOLS, "the paper")]
    rows = []
    for way in (way for way in ways if way != "retrain"):
        cells = [way_of(way)]
        for place in places:
            group, reference = Group(place, Treatment(way)), Group(place, RETRAIN)
            for protocol in PROTOCOLS:
                cells.append(_both([gap(summary, group, reference, name) for name in _names(protocol)], signed))
            cells.append(_both(_printed_gap(place, way), signed))
        rows.append(cells)
    return markdown(["minus Retrain", *heads], rows)


def gap(summary: Summary, group: Group | None, reference: Group | None, metric: str) -> float | None:
    """One group minus another, in points."""
    one, other = (None if it is None else summary.mean(it, metric) for it in (group, reference))
    return None if one is None or other is None else 100 * (one - other)


def _names(protocol: str) -> list[str]:
    return [f"{protocol}_{metric}" for metric in ("hr", "ndcg")]


def _accuracy(summary: Summary, group: Group | None, protocol: str) -> str:
    spreads = [None if group is None else summary.of(group, name) for name in _names(protocol)]
    return NOTHING if None in spreads else " / ".join(spread_of(spread) for spread in spreads)


def _printed(place: Place, way: str) -> list[float | None]:
    return [
        paper.figure(
            "table-1", name, dataset=place.dataset, model=place.model, malicious=place.malicious, way=way
        )
        for name in ("hr", "ndcg")
    ]  # fmt: skip


def _printed_gap(place: Place, way: str) -> list[float | None]:
    pairs = zip(_printed(place, way), _printed(place, "retrain"), strict=True)
    return [None if one is None or other is None else one - other for one, other in pairs]


def _both(values: Sequence[float | None], shown: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return " / ".join(map(shown, known)) if len(known) == len(values) else NOTHING


def speed_tables(summary: Summary) -> str:
    """For each data set the seconds of every way that does something, and how many times as fast as Retrain it is."""
    parts = []
    for _, group in groupby(coverage.places(summary, "speed"), lambda place: place.dataset):
        places = list(group)
        rows = []
        for way in coverage.ACTIVE:
            timed = [_time(summary, Group(place, Treatment(way))) for place in places]
            if set(timed) != {NOTHING}:
                rows.append([way_of(way), *timed])
        parts.append(markdown(["", *map(place_of, places)], rows))
    return "\n\n".join(parts)


def _time(summary: Summary, group: Group) -> str:
    seconds, ratio = summary.of(group, "seconds"), summary.of(group, "ratio")
    if seconds is None:
        return NOTHING
    shown = spread_of(seconds, scale=1.0, unit=" s")
    return shown if ratio is None else f"{shown} ({spread_of(ratio, scale=1.0, unit='x')})"


def alpha_tables(summary: Summary) -> str:
    """For each place the accuracy by α, selected by importance or at random, and the difference of the two."""
    parts = []
    for place in coverage.places(summary, "alpha"):
        curves = [coverage.alpha_curve(summary, place, how) for how in SELECTIONS]
        rows = []
        for alpha in sorted(set().union(*curves)):
            chosen, drawn = (curve.get(alpha) for curve in curves)
            cells = [f"{alpha:g}"]
            for protocol in PROTOCOLS:
                gaps = [gap(summary, chosen, drawn, name) for name in _names(protocol)]
                cells += [*(_accuracy(summary, group, protocol) for group in (chosen, drawn)), _both(gaps, signed)]
            rows.append(cells)
        rows.append(["Retrain", *(cell for name in PROTOCOLS for cell in (_retrained(summary, place, name), "", ""))])
        heads = [f"{name}, {what}" for name in PROTOCOLS for what in (*SELECTIONS, "difference")]
        parts.append(f"**{place_of(place)}**\n\n{markdown(['α', *heads], rows)}")
    return "\n\n".join(parts)


def _retrained(summary: Summary, place: Place, protocol: str) -> str:
    return _accuracy(summary, Group(place, RETRAIN), protocol)


def beta_tables(summary: Summary) -> str:
    """For each place the accuracy of every sampler by β."""
    parts = []
    for place in coverage.places(summary, "beta"):
        rows = [
            [f"{beta:g}", protocol, *(
                _accuracy(summary, Group(place, Treatment("attacked"), sampler, beta), protocol) for sampler in KINDS
            )]
            for protocol in PROTOCOLS for beta in coverage.betas(summary, place)
        ]  # fmt: skip
        parts.append(f"**{place_of(place)}**\n\n{markdown(['β', 'protocol', *KINDS], rows)}")
    return "\n\n".join(parts)


def lambda_tables(summary: Summary) -> str:
    """For each place every way that has a λ: its accuracy and time by λ, with what the paper prints."""
    head = ["", "λ", *PROTOCOLS, "time (against Retrain)", "the paper's HR", "the paper's time"]
    parts = []
    for place in coverage.places(summary, "lambda"):
        retrain = Group(place, RETRAIN)
        rows = [[way_of("retrain"), "", *_measures(summary, retrain), NOTHING, NOTHING]]
        for way in REPLAYS:
            for speedup, group in coverage.lambda_curve(summary, place, way).items():
                printed = _printed_lambda(place, way, speedup)
                rows.append([way_of(way), f"{speedup:g}", *_measures(summary, group), *printed])
        parts.append(f"**{place_of(place)}**\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def _measures(summary: Summary, group: Group) -> list[str]:
    return [*(_accuracy(summary, group, protocol) for protocol in PROTOCOLS), _time(summary, group)]


def _printed_lambda(place: Place, way: str, speedup: float) -> list[str]:
    hr, seconds = (
        paper.figure(
            "lambda", metric, dataset=place.dataset, model=place.model, malicious=place.malicious, way=way,
            speedup=speedup,
        )
        for metric in ("hr", "seconds")
    )  # fmt: skip
    return [NOTHING if hr is None else printed_of(hr), NOTHING if seconds is None else f"{printed_of(seconds)} s"]


def storage_table(summary: Summary) -> str:
    """What a device keeps, in bytes and as a share of the item table, beside what the paper's formula gives."""
    head = ["", "", "item rows", "the paper's formula", "other tensors", "everything", "rows / item table",
            "everything / item table", "the paper"]  # fmt: skip
    rows = []
    for place in coverage.storage_places(summary):
        for way in coverage.LOGS:
            if _measured(summary, place, way):
                rows.append([place_of(place), way_of(way), *_log(summary, Group(place, Treatment(way)))])
    return markdown(head, rows)


def _log(summary: Summary, group: Group) -> list[str]:
    rows, formula, dense, total, table = (
        summary.mean(group, name) or 0.0
        for name in ("log_rows_bytes", "formula_bytes", "log_dense_bytes", "log_bytes", "item_table_bytes")
    )
    place, way = group.place, group.treatment.way
    whole = WAYS[way].log.whole_updates
    count = f" ({rows / (4 * build_model(place.model).dim):,.0f} rows)" if whole else " (lengths)"
    return [
        in_bytes(rows) + count,
        in_bytes(formula) if way == "fru-server" else NOTHING,
        in_bytes(dense),
        in_bytes(total),
        share_of(rows / table),
        share_of(total / table),
        _printed_log(place, way),
    ]


def _printed_log(place: Place, way: str) -> str:
    rows, share = (
        paper.figure("storage", name, dataset=place.dataset, model=place.model, way=way) for name in ("rows", "share")
    )
    return NOTHING if rows is None or share is None else f"{share:g}% ({rows:,.0f} rows)"
