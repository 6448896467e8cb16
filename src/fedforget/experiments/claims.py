"""Claims: statements of the paper and our own goals, judged from the results.

A claim has checks, each the difference of two means that is positive if the claim is true. A check of "at least as
good" also holds if the difference is within one standard deviation (the root mean square of the two). Accuracy is
judged by HR@10 and NDCG@10 in the sampled protocol. A claim holds if all checks hold, and does not hold if fewer than
a fifth do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fedforget.experiments.results import ACCURACIES, SIZES
from fedforget.experiments.studies import STUDIES, Choices
from fedforget.experiments.summary import PLACE, paper_figures, study_rows, wide, with_labels
from fedforget.experiments.variants import VARIANTS

HOLDS, IN_PART, FAILS, UNKNOWN = "holds", "holds in part", "does not hold", "not measured"
#: Tolerated relative deviation of a log size from the paper's.
TOLERANCE = 0.1
#: Our goals for FRU on the device: speed-up over Retrain, and log size as a fraction of the item table.
OUR_FACTOR, OUR_SHARE = 9.0, 0.01
THEIRS, OURS = ["retrain", "fru-all", "fru-server"], ["fru-device", "fru-logged"]
CHECK = [*PLACE, "place", "metric"]


@dataclass(frozen=True)
class Claim:
    """A claim and its checks; ``ours`` if the paper does not make it.

    ``checks`` has the columns of ``CHECK`` and ``detail``, ``value`` (the figure that is shown), ``difference`` and
    ``spread``. A ``strict`` claim does not tolerate one standard deviation. ``paper`` are the outcomes of the same
    checks with the paper's own figures.
    """

    study: str
    text: str
    checks: pl.DataFrame
    unit: str = " points"
    strict: bool = True
    ours: bool = False
    paper: Sequence[bool] = ()

    def of(self, protocol: str) -> pl.DataFrame:
        """The checks on accuracy in a protocol; all others count as sampled."""
        return self.checks.filter(pl.col("metric").str.starts_with("full") == (protocol == "full"))

    @property
    def verdict(self) -> str:
        return verdict(outcomes(self.of("sampled"), strict=self.strict))

    def row(self) -> dict[str, str]:
        """The claim as a row of a table."""
        checks, shown = self.of("sampled"), self.verdict
        values, strict = checks["value"].to_list(), self.strict and self.unit == " points"
        lowest = checks.sort("difference", maintain_order=True).to_dicts()[0] if shown in (IN_PART, FAILS) else {}
        metric = {"sampled_hr": "HR", "sampled_ndcg": "NDCG"}.get(lowest.get("metric", ""))
        by = ["dataset", "model"] if self.study == "storage" else ["dataset", "model", "malicious"]
        experiments = STUDIES[self.study].experiments(Choices())
        expected = {tuple(getattr(experiment.setting, name) for name in by) for experiment in experiments}
        return {
            "study": self.study,
            "claim": self.text,
            "by": "ours" if self.ours else "paper",
            "verdict": f"**{shown}**",
            "checks": _count(outcomes(checks, strict=self.strict)),
            "by > 1 std": _count((checks["difference"] > checks["spread"]).to_list()) if strict else "",
            "full protocol": _count(outcomes(self.of("full"), strict=self.strict)),
            "paper's figures": _count(self.paper),
            "range": f"{min(values):.1f} to {max(values):.1f}{self.unit}" if values else "",
            "lowest in": ", ".join(filter(None, [lowest.get("place"), metric, lowest.get("detail")])),
            "settings": f"{len(expected & set(checks.select(by).iter_rows()))}/{len(expected)}",
        }


def outcomes(checks: pl.DataFrame, *, strict: bool) -> list[bool]:
    """Whether each check holds."""
    holds = checks["difference"] > 0 if strict else checks["difference"] >= -checks["spread"]
    return holds.to_list()


def verdict(holds: Sequence[bool]) -> str:
    """What follows from the outcomes of the checks."""
    if not holds:
        return UNKNOWN
    if all(holds):
        return HOLDS
    return FAILS if 5 * sum(holds) < len(holds) else IN_PART


def judge(summary: pl.DataFrame) -> list[Claim]:
    """All claims, in the order of the studies."""
    return [*_recovery(summary), *_speed(summary), *_parameters(summary), *_storage(summary)]


def _recovery(summary: pl.DataFrame) -> list[Claim]:
    rows, printed = study_rows(summary, "table-1"), _printed("table-1")

    def claim(text: str, better: str, worse: str, *, strict: bool = True) -> Claim:
        ours = better in OURS
        checks, paper = (_compare(frame.filter(way=better), frame.filter(way=worse)) for frame in (rows, printed))
        paper_outcomes = [] if ours else outcomes(paper, strict=strict)
        return Claim("table-1", text, checks, strict=strict, ours=ours, paper=paper_outcomes)

    text, device = "{} is at least as good as Retrain in every setting", f"{VARIANTS['fru-device'].label},"
    return [
        claim(text.format("FRU"), "fru-server", "retrain", strict=False),
        *(claim(text.format(f"{VARIANTS[name].label},"), name, "retrain", strict=False) for name in OURS),
        claim("FRU is above FedRemove", "fru-server", "fedremove"),
        claim("FRU is above Attacked", "fru-server", "attacked"),
        claim(f"{device} is above FedRemove", "fru-device", "fedremove"),
        claim(f"{device} is above Attacked", "fru-device", "attacked"),
        claim("FedRemove stays below Retrain", "retrain", "fedremove"),
        claim("FRU with selection is at least as good as without", "fru-server", "fru-all", strict=False),
    ]


def _speed(summary: pl.DataFrame) -> list[Claim]:
    rows = study_rows(summary, "speed")
    seconds = rows.filter(metric="seconds")

    def factor(name: str, way: str, goal: float) -> Claim:
        ratio = pl.col("mean")
        checks = _checks(rows.filter(way=way, metric="ratio"), ratio - goal, ratio)
        text = f"{name} is {goal:g}x as fast as Retrain at λ = 0.1"
        return Claim("speed", text, checks, "x", strict=False, ours=way in OURS)

    def faster(text: str, way: str, others: list[str]) -> Claim:
        fastest = seconds.filter(pl.col("way").is_in(others)).group_by(PLACE).agg(fastest=pl.col("mean").min())
        pairs = seconds.filter(way=way).join(fastest, on=PLACE, maintain_order="left")
        return Claim("speed", text, _checks(pairs, pl.col("fastest") - pl.col("mean")), " s")

    return [
        factor("FRU", "fru-server", paper_figures("speed")["value"].item()),
        factor(f"{VARIANTS['fru-device'].label},", "fru-device", OUR_FACTOR),
        faster("FedRemove is the fastest of the paper's methods", "fedremove", THEIRS),
        faster("FRU is faster with selection than without", "fru-server", ["fru-all"]),
    ]


def _parameters(summary: pl.DataFrame) -> list[Claim]:
    alpha, beta, curve = (study_rows(summary, study) for study in ("alpha", "beta", "lambda"))
    alpha = alpha.with_columns(detail=pl.format("α = {}", "alpha"))
    importance = alpha.filter(way="fru-server", selection="importance")
    highest = importance.sort("mean", descending=True, maintain_order=True)
    best = highest.unique(CHECK, keep="first", maintain_order=True)
    random, every = alpha.filter(way="fru-server", selection="random"), alpha.filter(way="fru-all", selection="all")
    mixed = beta.filter(sampler="mixed").with_columns(detail=pl.format("β = {}", "beta"))
    others = beta.filter(pl.col("sampler") != "mixed")
    half, whole = mixed.filter(beta=0.5), others.filter(sampler="random", beta=1)
    fru, printed = curve.filter(way="fru-server"), _printed("lambda")
    accuracy = pl.col("metric").is_in(ACCURACIES)
    lower, slower = (outcomes(_falling(printed.filter(kind)), strict=True) for kind in (accuracy, ~accuracy))
    equal = "Mixed at β = 0.5 is at least as good as random at β = 1"
    return [
        Claim("alpha", "Importance beats random selection at every α", _compare(importance, random, "alpha")),
        Claim("alpha", "The accuracy peaks below α = 1", _compare(best, every)),
        Claim("beta", "The mixed sampler beats random, user and item at the same β", _compare(mixed, others, "beta")),
        Claim("beta", equal, _compare(half, whole), strict=False),
        Claim("lambda", "The accuracy falls as λ grows", _falling(fru.filter(accuracy)), paper=lower),
        Claim("lambda", "The time grows with λ", _falling(fru.filter(metric="ratio")), "x", paper=slower),
    ]


def _storage(summary: pl.DataFrame) -> list[Claim]:
    sizes = wide(study_rows(summary, "storage"), "mean", [*PLACE, "place", "way"], SIZES)
    shares = paper_figures("storage").filter(metric="share").select("dataset", "model", printed="value")
    server, device = sizes.filter(way="fru-server"), sizes.filter(way="fru-device")
    of_formula = 100 * pl.col("log_rows_bytes") / pl.col("formula_bytes")
    share = 100 * pl.col("log_bytes") / pl.col("item_table_bytes")
    near = _checks(server, 100 * TOLERANCE - (of_formula - 100).abs(), of_formula)
    extra = _checks(server.join(shares, on=["dataset", "model"]), (1 + TOLERANCE) * pl.col("printed") - share, share)
    printed = " or ".join(f"{value:g}% ({dataset}, {model})" for dataset, model, value in shares.iter_rows())
    goal = f"The log of {VARIANTS['fru-device'].label}, takes at most {OUR_SHARE:.0%} of the item table"
    return [
        Claim("storage", "A device stores α(1 + βn) rows for each item and round", near, "% of that", strict=False),
        Claim("storage", f"The log takes an extra {printed} of the item table", extra, "%", strict=False),
        Claim("storage", goal, _checks(device, 100 * OUR_SHARE - share, share), "%", strict=False, ours=True),
    ]


def _printed(study: str) -> pl.DataFrame:
    """The paper's figures in the columns of a summary; times are negative, so that longer is lower."""
    seconds = pl.col("metric") == "seconds"
    metric = pl.when(seconds).then("metric").otherwise(pl.format("sampled_{}", "metric"))
    mean = pl.when(seconds).then(-pl.col("mean")).otherwise("mean")
    figures = paper_figures(study).with_columns(metric=metric, mean=mean, spread=pl.lit(0.0), rounds=pl.lit(0))
    return with_labels(figures)


def _compare(better: pl.DataFrame, worse: pl.DataFrame, *on: str) -> pl.DataFrame:
    """Checks that accuracies are higher, where both were measured."""
    keys = [*CHECK, *on]
    lower = worse.select(*keys, low="mean", low_spread="spread")
    joined = better.filter(pl.col("metric").is_in(ACCURACIES[:4])).join(lower, on=keys, maintain_order="left")
    return _checks(joined.with_columns(spread=_pooled("low_spread")), pl.col("mean") - pl.col("low"))


def _falling(curve: pl.DataFrame) -> pl.DataFrame:
    """Checks that a metric falls from each λ to the next."""
    curve = curve.filter(pl.col("metric") != "full_recall").sort("lambda", maintain_order=True)
    before = {f"{name}_before": pl.col(name).shift(1).over(CHECK) for name in ("mean", "spread")}
    steps = curve.with_columns(detail=pl.format("λ = {}", "lambda"), **before).drop_nulls("mean_before")
    return _checks(steps.with_columns(spread=_pooled("spread_before")), pl.col("mean_before") - pl.col("mean"))


def _pooled(other: str) -> pl.Expr:
    """The root mean square of two standard deviations."""
    return ((pl.col("spread") ** 2 + pl.col(other) ** 2) / 2).sqrt()


def _checks(rows: pl.DataFrame, difference: pl.Expr, value: pl.Expr | None = None) -> pl.DataFrame:
    """A table of checks; the value shown is the difference, in points for accuracies, unless another is given."""
    defaults = {"metric": pl.lit(""), "detail": pl.lit(""), "spread": pl.lit(0.0)}
    rows = rows.with_columns(**{name: column for name, column in defaults.items() if name not in rows.columns})
    scale = pl.when(pl.col("metric").is_in(ACCURACIES)).then(100).otherwise(1)
    rows = rows.with_columns(difference=difference, value=scale * difference if value is None else value)
    return rows.select(*CHECK, "detail", "value", "difference", "spread")


def _count(holds: Sequence[bool]) -> str:
    return f"{sum(holds)}/{len(holds)}" if holds else ""
