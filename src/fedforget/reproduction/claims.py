"""Claim: what the paper says, or what we set out to reach, and whether the measured figures bear it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedforget.reproduction import checks, evidence, paper
from fedforget.reproduction.checks import Check
from fedforget.reproduction.labels import DATASETS, MODELS, way_of
from fedforget.reproduction.summary import Group, Summary

HOLDS, IN_PART, FAILS, UNKNOWN = "holds", "holds in part", "does not hold here", "not measured"
#: By how much the rows of a log may exceed or fall short of the paper's formula.
NEAR = 0.1
#: What we want of our own ways: how many times as fast as Retrain, and which share of the item table the log may take.
OUR_FACTOR, OUR_SHARE = 9.0, 0.01
#: The paper's ways beside FedRemove that take time, and ours.
THEIRS, OURS = ["retrain", "fru-all", "fru-server"], ["fru-device", "fru-logged"]
RULE = (
    "Verdicts follow from the figures by one rule. A claim is checked in every measured setting (data, model, share "
    "of malicious users) on HR@10 and NDCG@10 in the sampled protocol, which fits the paper's figures best; how it "
    'does in the full protocol is said beside it. "At least as good" allows one standard deviation of the two groups '
    "(the root mean square of theirs; for a single seed, the typical one of all groups with several seeds). "
    '"Above", "below" and "beats" ask only that the mean differs in that direction; how often it does by more than '
    f"one standard deviation is said too. If all checks hold, the claim **{HOLDS}**; if fewer than a fifth do, it "
    f"**{FAILS}**; else it **{IN_PART}**. A factor of speed must be reached by the mean; the size of a log must be "
    "within a tenth of what the paper says."
)


@dataclass(frozen=True)
class Claim:
    """A claim, the study that tests it, the verdict, the figures behind it; ``ours`` if the paper does not make it."""

    study: str
    text: str
    verdict: str
    evidence: str
    ours: bool = False


def verdict(outcomes: Sequence[bool]) -> str:
    """What follows from the outcomes of a claim's checks."""
    if not outcomes:
        return UNKNOWN
    if all(outcomes):
        return HOLDS
    return FAILS if 5 * sum(outcomes) < len(outcomes) else IN_PART


def judge(summary: Summary) -> list[Claim]:
    """Every claim, in the order of the studies."""
    return [*_of_recovery(summary), *_of_speed(summary), *_of_parameters(summary), *_of_storage(summary)]


def _of_recovery(summary: Summary) -> list[Claim]:
    text = "{} is at least as good as Retrain in every setting"
    selection = "With importance-based update selection FRU is at least as good as without"
    return [
        _ways(summary, text.format("FRU"), "fru-server", "retrain", strict=False),
        *(_ways(summary, text.format(f"{way_of(way)},"), way, "retrain", strict=False, ours=True) for way in OURS),
        _ways(summary, "FRU is above FedRemove", "fru-server", "fedremove"),
        _ways(summary, "FRU is above Attacked", "fru-server", "attacked"),
        _ways(summary, f"{way_of('fru-device')}, is above FedRemove", "fru-device", "fedremove", ours=True),
        _ways(summary, f"{way_of('fru-device')}, is above Attacked", "fru-device", "attacked", ours=True),
        _ways(summary, "FedRemove does not recover: it stays below Retrain", "retrain", "fedremove"),
        _ways(summary, selection, "fru-server", "fru-all", strict=False),
    ]


def _of_speed(summary: Summary) -> list[Claim]:
    selection = checks.of_fastest(summary, "fru-server", ["fru-all"])
    fastest = checks.of_fastest(summary, "fedremove", THEIRS)
    with_ours = checks.of_fastest(summary, "fedremove", [*THEIRS, *OURS])
    beside = f"Compared with the paper's methods; with ours as well, {evidence.tally(with_ours)}." if fastest else ""
    factor = paper.figure("speed", "ratio", speedup=0.1) or 0.0
    return [
        _factor(summary, "FRU", "fru-server", factor),
        _factor(summary, way_of("fru-device"), "fru-device", OUR_FACTOR, ours=True),
        _claim(
            summary, "speed", "FedRemove is the fastest", fastest, evidence.counts_of_times(fastest), beside
        ),
        _claim(
            summary, "speed", "FRU is a little faster than without selection", selection,
            evidence.counts_of_times(selection),
        ),
    ]  # fmt: skip


def _of_parameters(summary: Summary) -> list[Claim]:
    longer = checks.of_growing_lambda(summary, "fru-server", "ratio", sign=-1)
    longer_there = checks.of_growing_lambda_in_the_paper("seconds", sign=1)
    lower_there = checks.of_growing_lambda_in_the_paper("hr", sign=-1)
    return [
        _accuracy(summary, "alpha", "Importance beats random selection at every α", checks.of_importance),
        _accuracy(summary, "alpha", "The accuracy has its peak below α = 1", checks.of_peak),
        _accuracy(summary, "beta", "The mixed sampler beats random, user and item at the same β", checks.of_mixed),
        _accuracy(summary, "beta", "Mixed at β = 0.5 is about (at least) as good as random at β = 1", checks.of_half),
        _accuracy(summary, "lambda", "The accuracy falls as λ grows", checks.of_falling_accuracy, lower_there),
        _claim(
            summary, "lambda", "The time grows with λ", longer, evidence.counts_of_times(longer, longer_there)
        ),
    ]  # fmt: skip


def _of_storage(summary: Summary) -> list[Claim]:
    rows = checks.of_log(summary, "fru-server", "log_rows_bytes", lambda group: summary.mean(group, "formula_bytes"))
    near = [abs(check.difference) <= NEAR for check in rows]
    text = "A device stores α(1 + βn) item rows for each own item and participation"
    told = _sentences(evidence.multiples(rows, near), evidence.missing(summary, "storage", rows))
    own = checks.of_log(summary, "fru-device", "log_bytes", lambda group: _of_table(summary, group, OUR_SHARE))
    goal = f"The log of {way_of('fru-device')}, takes at most {OUR_SHARE:.0%} of the item table, everything counted"
    return [
        Claim("storage", text, verdict(near), told),
        _share_of_the_log(summary),
        _claim(summary, "storage", goal, own, evidence.sizes(summary, "fru-device", own), ours=True),
    ]


def _ways(summary: Summary, text: str, better: str, worse: str, *, strict: bool = True, ours: bool = False) -> Claim:
    """A claim that one way is better than another in table 1."""

    def find(summary: Summary, protocol: str) -> list[Check]:
        return checks.of_ways(summary, better, worse, protocol, strict=strict)

    own = [] if ours else checks.of_the_paper(better, worse, strict=strict)
    return _accuracy(summary, "table-1", text, find, own, ours=ours)


def _accuracy(
    summary: Summary,
    study: str,
    text: str,
    find: Callable[[Summary, str], list[Check]],
    own: Sequence[bool] = (),
    *,
    ours: bool = False,
) -> Claim:
    """A claim on accuracies: judged in the sampled protocol, told for both."""
    sampled, full = find(summary, "sampled"), find(summary, "full")
    told = [evidence.counts(sampled, full, own), evidence.exceptions(sampled)] if sampled else []
    return _claim(summary, study, text, sampled, *told, ours=ours)


def _factor(summary: Summary, name: str, way: str, factor: float, *, ours: bool = False) -> Claim:
    found = checks.of_factor(summary, way, factor)
    text = f"{name}{',' * ours} is {factor:g}x as fast as Retrain at λ = 0.1"
    return _claim(summary, "speed", text, found, evidence.factors(found, factor), ours=ours)


def _share_of_the_log(summary: Summary) -> Claim:
    """The one example that the paper computes, with everything that a device keeps."""
    shares = {(one.dataset, one.model): one.value for one in paper.printed() if one.metric == "share"}

    def limit(group: Group) -> float | None:
        share = shares.get((group.place.dataset, group.place.model))
        return None if share is None else _of_table(summary, group, share / 100)

    found = checks.of_log(summary, "fru-server", "log_bytes", limit, NEAR)
    printed = " or ".join(
        f"{share:g}% ({DATASETS[dataset]}, {MODELS[model]})" for (dataset, model), share in shares.items()
    )
    done = {(check.place.dataset, check.place.model) for check in found}
    left = [f"{DATASETS[dataset]}, {MODELS[model]}" for dataset, model in shares if (dataset, model) not in done]
    told = f"Not measured: {'; '.join(left)}." if left else ""
    return Claim(
        "storage",
        f"The log takes an extra {printed} of the item table; here everything is counted",
        verdict([check.holds for check in found]),
        _sentences(evidence.sizes(summary, "fru-server", found), told),
    )


def _of_table(summary: Summary, group: Group, share: float) -> float | None:
    table = summary.mean(group, "item_table_bytes")
    return None if table is None else share * table


def _claim(summary: Summary, study: str, text: str, found: Sequence[Check], *told: str, ours: bool = False) -> Claim:
    """A claim that stands or falls with these checks."""
    sentences = _sentences(*told, evidence.missing(summary, study, found))
    return Claim(study, text, verdict([check.holds for check in found]), sentences, ours)


def _sentences(*parts: str) -> str:
    return " ".join(filter(None, parts))
