"""Coverage: what of each study was measured, where and at which points of its curves, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedforget.experiments.ways import WAYS
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.labels import ordered
from fedforget.reproduction.studies import REPLAYS, STUDIES, Choices
from fedforget.reproduction.summary import Group, Place, Summary
from fedforget.server.unlearning import FRU

#: The ways that do something, and so take time; and those of them that the λ study does not time as well.
ACTIVE = [name for name, way in WAYS.items() if way.method is not None]
ONLY_IN_SPEED = [name for name in ACTIVE if name not in ("retrain", *REPLAYS)]
#: The ways whose log is looked at.
LOGS = ("fru-all", "fru-server", "fru-device")


def _plain(group: Group) -> bool:
    """Whether a group is one of table 1: a way as it is, after an attack."""
    usual = (group.sampler, group.beta) == ("mixed", 0.5)
    return usual and group.place.malicious > 0 and group.treatment == Treatment(group.treatment.way)


#: Which groups show that a study was run at their place, and not only what it shares with others.
SIGNS: dict[str, Callable[[Summary, Group], bool]] = {
    "table-1": lambda _, group: _plain(group),
    "speed": lambda summary, group: (
        _plain(group) and group.treatment.way in ONLY_IN_SPEED and summary.of(group, "seconds") is not None
    ),
    "alpha": lambda _, group: group.treatment.alpha is not None,
    "beta": lambda _, group: group.place.malicious == 0,
    "lambda": lambda _, group: group.treatment.speedup is not None,
    "storage": lambda _, group: _plain(group) and group.treatment.way in LOGS,
}


def places(summary: Summary, study: str) -> list[Place]:
    """Where a study was measured, at least in part."""
    return ordered(group.place for group in summary.groups if SIGNS[study](summary, group))


def storage_places(summary: Summary) -> list[Place]:
    """Where logs are looked at: for each data set and model, the smallest share of malicious users only."""
    smallest: dict[tuple[str, str], Place] = {}
    for place in places(summary, "storage"):
        smallest.setdefault((place.dataset, place.model), place)
    return list(smallest.values())


def expected(study: str, rounds: int) -> list[Group]:
    """What the study takes if it is run as in the paper."""
    return list(dict.fromkeys(Group.of(cell) for cell in STUDIES[study].cells(Choices(rounds=rounds))))


def missing(summary: Summary, study: str, rounds: int) -> list[Group]:
    """What of that was not measured; for a timed study, not timed."""
    metric = "seconds" if STUDIES[study].timed else "sampled_hr"
    measured = (group for group in summary.groups if summary.of(group, metric) is not None)
    done = {replace(group, place=scope(study, group.place)) for group in measured}
    wanted = expected(study, rounds)
    return [group for group in wanted if replace(group, place=scope(study, group.place)) not in done]


def scope(study: str, place: Place) -> Place:
    """What a study tells places apart by: for the size of logs, malicious users make no difference."""
    return replace(place, malicious=0.0) if study == "storage" else place


def alpha_curve(summary: Summary, place: Place, selection: str) -> dict[float, Group]:
    """The paper's FRU at a place by the share of rows its log keeps, from small to large; all of them is 1."""
    curve = {}
    for group in summary.groups:
        treatment = group.treatment
        if group.place == place and treatment.way in ("fru-server", "fru-all") and treatment.speedup is None:
            log = treatment.resolve().log
            if log.selection in (selection, "all"):
                curve[1.0 if log.selection == "all" else log.alpha] = group
    return dict(sorted(curve.items()))


def lambda_curve(summary: Summary, place: Place, way: str, metric: str = "sampled_hr") -> dict[float, Group]:
    """A way at a place by its λ, from small to large, where a metric was measured."""
    curve = {}
    for group in summary.groups:
        treatment = group.treatment
        method = treatment.resolve().method
        as_it_is = treatment.alpha is None and treatment.selection is None
        if group.place == place and treatment.way == way and as_it_is and isinstance(method, FRU):
            curve[method.speedup] = group
    return {speedup: group for speedup, group in sorted(curve.items()) if summary.of(group, metric)}


def betas(summary: Summary, place: Place) -> list[float]:
    """The shares of negatives that were tried at a place without an attack."""
    return sorted({group.beta for group in summary.groups if group.place == place})
