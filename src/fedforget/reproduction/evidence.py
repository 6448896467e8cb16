"""Evidence: the sentences that say on which figures a verdict rests, where it fails and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.reproduction import coverage
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.checks import Check
from fedforget.reproduction.labels import METRICS, ordered, place_of, places_of, share_of
from fedforget.reproduction.summary import Group, Summary

#: How many exceptions are named, the worst first; the others are counted.
NAMED = 2


def tally(found: Sequence[Check]) -> str:
    """How many checks hold, of how many."""
    return f"{sum(check.holds for check in found)} of {len(found)}"


def counts(sampled: Sequence[Check], full: Sequence[Check], own: Sequence[bool]) -> str:
    """How many checks of accuracies hold, in both protocols and in the paper's own table."""
    clear = f" ({sum(check.clear for check in sampled)} by more than one standard deviation)"
    text = f"{tally(sampled)} checks hold{clear if sampled[0].strict else ''}, in the full protocol {tally(full)}"
    return text + _in_the_paper(own) + "."


def counts_of_times(found: Sequence[Check], own: Sequence[bool] = ()) -> str:
    """The same of times."""
    return f"{tally(found)} checks hold{_in_the_paper(own)}." if found else ""


def _in_the_paper(own: Sequence[bool]) -> str:
    return f", in the paper's own table {sum(own)} of {len(own)}" if own else ""


def exceptions(found: Sequence[Check]) -> str:
    """Where a claim on accuracies fails, and by how many points."""
    failed = sorted((check for check in found if not check.holds), key=lambda check: check.difference)
    told = []
    for check in failed[:NAMED]:
        where = f"{place_of(check.place)}, {check.detail}" if check.detail else place_of(check.place)
        points = f"{-100 * check.difference:.1f} points (one standard deviation is {100 * check.spread:.1f})"
        told.append(f"{METRICS[check.metric]} in {where}, by {points}")
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return f"Not: {'; '.join(told)}{more}." if told else ""


def factors(found: Sequence[Check], factor: float) -> str:
    """Between which bounds a speed-up lies, and how often it is large enough."""
    if not found:
        return ""
    in_order = sorted(found, key=lambda check: check.difference)
    ends = [f"{check.difference + factor:.1f}x ({place_of(check.place)})" for check in (in_order[0], in_order[-1])]
    span = f"From {ends[0]} to {ends[1]}" if len(found) > 1 else ends[0]
    return f"{span}; {tally(found)} settings reach {factor:g}x."


def multiples(found: Sequence[Check], near: Sequence[bool]) -> str:
    """Between which bounds the size of item rows lies, as multiples of the paper's formula; how many are near."""
    if not found:
        return ""
    ratios = [1 - check.difference for check in found]
    span = f"{min(ratios):.2f} to {max(ratios):.2f} times"
    return f"The item rows take {span} what the formula gives; {sum(near)} of {len(near)} are near it."


def sizes(summary: Summary, way: str, found: Sequence[Check]) -> str:
    """What a way's log takes of the item table: everything, and its item rows alone."""
    told = []
    for check in found:
        group = Group(check.place, Treatment(way))
        table = summary.mean(group, "item_table_bytes") or 1.0
        total, rows = ((summary.mean(group, part) or 0.0) / table for part in ("log_bytes", "log_rows_bytes"))
        told.append(f"{place_of(check.place)}: {share_of(total)}, of which item rows {share_of(rows)}")
    return "; ".join(told) + "." if told else ""


def missing(summary: Summary, study: str, found: Sequence[Check]) -> str:
    """Which settings of the paper have no check."""
    wanted = ordered(group.place for group in coverage.expected(study, summary.rounds))
    checked = {coverage.scope(study, check.place) for check in found}
    left = [place for place in wanted if coverage.scope(study, place) not in checked]
    if not checked:
        return "None of its cells is finished."
    return f"Not measured: {places_of(left, wanted)}." if left else ""
