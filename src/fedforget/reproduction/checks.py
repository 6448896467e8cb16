"""Check: one comparison of two figures that a claim rests on, and all comparisons of each kind of claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedforget.device.sampling import KINDS
from fedforget.reproduction import coverage, paper
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.summary import Group, Place, Summary

METRICS = ("hr", "ndcg")


@dataclass(frozen=True)
class Check:
    """By how much a figure is above another, where that is what a claim says, or below, where it says the opposite.

    ``difference`` is positive where it goes the claim's way. A strict check holds only then; another one also holds
    where the difference is within ``spread``, one standard deviation of the two.
    """

    place: Place
    metric: str
    difference: float
    spread: float = 0.0
    strict: bool = True
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is as the claim says."""
        return self.difference > 0 if self.strict else self.difference >= -self.spread

    @property
    def clear(self) -> bool:
        """Whether it is so by more than one standard deviation."""
        return self.difference > self.spread


def contrast(
    summary: Summary, metric: str, better: Group, worse: Group, *, strict: bool, detail: str = ""
) -> Iterator[Check]:
    """The check that one group is better than another, if both were measured."""
    high, low = summary.mean(better, metric), summary.mean(worse, metric)
    if high is not None and low is not None:
        spread = summary.pooled(better, worse, metric)
        yield Check(better.place, metric, high - low, spread, strict, detail)


def of_ways(summary: Summary, better: str, worse: str, protocol: str, *, strict: bool) -> list[Check]:
    """That one way is better than another at every place of table 1."""
    return [
        check
        for place in coverage.places(summary, "table-1")
        for metric in METRICS
        for check in contrast(
            summary, f"{protocol}_{metric}", Group(place, Treatment(better)), Group(place, Treatment(worse)),
            strict=strict,
        )
    ]  # fmt: skip


def of_the_paper(better: str, worse: str, *, strict: bool) -> list[bool]:
    """The same in the paper's own table, whose figures have no spread."""
    table = [one for one in paper.printed() if one.study == "table-1"]
    high, low = (
        {(one.dataset, one.model, one.malicious, one.metric): one.value for one in table if one.way == way}
        for way in (better, worse)
    )
    return [high[where] > low[where] if strict else high[where] >= low[where] for where in high if where in low]


def of_factor(summary: Summary, way: str, factor: float) -> list[Check]:
    """That a way is so many times as fast as Retrain, in the mean over seeds."""
    checks = []
    for place in coverage.places(summary, "speed"):
        ratio = summary.mean(Group(place, Treatment(way)), "ratio")
        if ratio is not None:
            checks.append(Check(place, "ratio", ratio - factor, strict=False))
    return checks


def of_fastest(summary: Summary, way: str, others: Sequence[str]) -> list[Check]:
    """That a way takes less time than each of the others that were timed at the same place."""
    checks = []
    for place in coverage.places(summary, "speed"):
        own = summary.mean(Group(place, Treatment(way)), "seconds")
        theirs = [summary.mean(Group(place, Treatment(other)), "seconds") for other in others]
        timed = [seconds for seconds in theirs if seconds is not None]
        if own is not None and timed:
            checks.append(Check(place, "seconds", min(timed) - own))
    return checks


def of_importance(summary: Summary, protocol: str) -> list[Check]:
    """That rows selected by importance are better than random ones, for each α below 1."""
    checks: list[Check] = []
    for place in coverage.places(summary, "alpha"):
        chosen, drawn = (coverage.alpha_curve(summary, place, how) for how in ("importance", "random"))
        for alpha in (alpha for alpha in chosen if alpha < 1 and alpha in drawn):
            for metric in (f"{protocol}_{metric}" for metric in METRICS):
                pair = chosen[alpha], drawn[alpha]
                checks += contrast(summary, metric, *pair, strict=True, detail=f"α = {alpha:g}")
    return checks


def of_peak(summary: Summary, protocol: str) -> list[Check]:
    """That some α below 1 is better than keeping every row."""
    checks: list[Check] = []
    for place in coverage.places(summary, "alpha"):
        curve = coverage.alpha_curve(summary, place, "importance")
        for metric in (f"{protocol}_{metric}" for metric in METRICS):
            means = {alpha: summary.mean(group, metric) or 0.0 for alpha, group in curve.items() if alpha < 1}
            if means and 1.0 in curve:
                best = max(means, key=means.__getitem__)
                pair = curve[best], curve[1.0]
                checks += contrast(summary, metric, *pair, strict=True, detail=f"best at α = {best:g}")
    return checks


def _sampled_by(place: Place, sampler: str, beta: float) -> Group:
    return Group(place, Treatment("attacked"), sampler, beta)


def of_mixed(summary: Summary, protocol: str) -> list[Check]:
    """That the mixed sampler is better than each other one at the same β."""
    return [
        check
        for place in coverage.places(summary, "beta")
        for beta in coverage.betas(summary, place)
        for other in KINDS
        if other != "mixed"
        for metric in METRICS
        for check in contrast(
            summary, f"{protocol}_{metric}", _sampled_by(place, "mixed", beta), _sampled_by(place, other, beta),
            strict=True, detail=f"{other}, β = {beta:g}",
        )
    ]  # fmt: skip


def of_half(summary: Summary, protocol: str) -> list[Check]:
    """That the mixed sampler with half of the negatives is as good as the random one with all of them."""
    return [
        check
        for place in coverage.places(summary, "beta")
        for metric in METRICS
        for check in contrast(
            summary, f"{protocol}_{metric}", _sampled_by(place, "mixed", 0.5), _sampled_by(place, "random", 1.0),
            strict=False,
        )
    ]  # fmt: skip


def of_growing_lambda(summary: Summary, way: str, metric: str, *, sign: int) -> list[Check]:
    """That a metric grows (1) or falls (-1) from each λ to the next larger one."""
    checks: list[Check] = []
    for place in coverage.places(summary, "lambda"):
        curve = coverage.lambda_curve(summary, place, way, metric)
        for (low, before), (high, after) in pairwise(curve.items()):
            pair = (after, before) if sign > 0 else (before, after)
            checks += contrast(summary, metric, *pair, strict=True, detail=f"λ from {low:g} to {high:g}")
    return checks


def of_falling_accuracy(summary: Summary, protocol: str) -> list[Check]:
    """That the accuracy of the paper's FRU falls from each λ to the next larger one."""
    return [
        check
        for metric in METRICS
        for check in of_growing_lambda(summary, "fru-server", f"{protocol}_{metric}", sign=-1)
    ]


def of_growing_lambda_in_the_paper(metric: str, *, sign: int) -> list[bool]:
    """The same in the paper's own table of λ."""
    found = []
    for model in dict.fromkeys(one.model for one in paper.printed() if one.study == "lambda"):
        values = [
            one.value for one in paper.printed() if (one.study, one.model, one.metric) == ("lambda", model, metric)
        ]
        found += [sign * (after - before) > 0 for before, after in pairwise(values)]
    return found


def of_log(
    summary: Summary, way: str, part: str, limit: Callable[[Group], float | None], tolerance: float = 0.0
) -> list[Check]:
    """That a part of a way's log takes no more bytes than a limit, or at most that share of it more."""
    checks = []
    for place in coverage.storage_places(summary):
        group = Group(place, Treatment(way))
        size, most = summary.mean(group, part), limit(group)
        if size is not None and most:
            checks.append(Check(place, part, 1 + tolerance - size / most, strict=False))
    return checks
