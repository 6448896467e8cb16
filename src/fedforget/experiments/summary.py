"""Summary: means and standard deviations over seeds, as one polars frame with a row for each metric.

``paper.csv`` has the figures printed in the paper: study, setting, variant (the paper's FRU is ``fru-server``, FRU
without importance-based update selection ``fru-all``), λ, metric and value. Accuracies and shares are in percent,
``seconds`` are those of the paper's machine, ``ratio`` is the speed-up over Retrain, ``rows`` the stored item rows.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import polars as pl

from fedforget.experiments.experiment import Experiment
from fedforget.experiments.results import ACCURACIES, EXPERIMENT, SIZES
from fedforget.experiments.studies import LOGS, REPLAYS
from fedforget.experiments.variants import VARIANTS

DATASETS = {"ml-100k": "MovieLens-100k", "steam-200k": "Steam-200k", "ml-1m": "MovieLens-1M"}
MODELS = {"ncf": "Fed-NCF", "lightgcn": "Fed-LightGCN", "mf": "MF"}
#: What identifies a federation apart from its seed and sampler.
PLACE = ["dataset", "model", "malicious", "rounds"]
#: What identifies an experiment apart from its seed. ``varied`` is "alpha" or "lambda" if the experiment changes its
#: variant; ``alpha``, ``selection`` and ``lambda`` are the values that are used.
GROUP = [*PLACE, "sampler", "beta", "way", "varied", "alpha", "selection", "lambda"]
#: Sorts by the usual order of the variants.
BY_VARIANT = pl.col("way").replace_strict({name: place for place, name in enumerate(VARIANTS)})
TIMES = ["seconds", "ratio"]
ACTIVE = [name for name, variant in VARIANTS.items() if variant.method is not None]
#: Variants that are timed in the speed study only.
ONLY_IN_SPEED = [name for name in ACTIVE if name not in ("retrain", *REPLAYS)]

_PLAIN = (pl.col("varied") == "") & (pl.col("malicious") > 0) & (pl.col("sampler") == "mixed") & (pl.col("beta") == 0.5)
#: Rows that show that a study was run, as opposed to rows that it shares with others.
_SIGNS = {
    "table-1": _PLAIN,
    "speed": _PLAIN & pl.col("way").is_in(ONLY_IN_SPEED) & (pl.col("metric") == "seconds"),
    "alpha": pl.col("varied") == "alpha",
    "beta": pl.col("malicious") == 0,
    "lambda": pl.col("varied") == "lambda",
    "storage": _PLAIN & pl.col("way").is_in(LOGS),
}
#: The metrics and variants that a study shows at the places where it was run, besides those that show it was run.
_METRICS = {
    "table-1": ACCURACIES,
    "speed": TIMES,
    "alpha": ACCURACIES,
    "beta": ACCURACIES,
    "lambda": [*ACCURACIES, *TIMES],
    "storage": SIZES,
}
_ROWS = {
    "speed": _PLAIN & pl.col("way").is_in(ACTIVE),
    "alpha": pl.col("way").is_in(["fru-server", "fru-all", "retrain"]) & (pl.col("varied") != "lambda"),
    "lambda": pl.col("way").is_in(["retrain", *REPLAYS]) & (pl.col("varied") != "alpha"),
}


def current(frame: pl.DataFrame) -> pl.DataFrame:
    """The results under the current settings with the largest number of rounds."""
    prints = [Experiment.from_columns(row).fingerprint() for row in frame.iter_rows(named=True)]
    valid = frame.filter(pl.col("settings") == pl.Series(prints, dtype=pl.String))
    return valid.filter(pl.col("rounds") == pl.col("rounds").max())


def summarize(frame: pl.DataFrame) -> pl.DataFrame:
    """Mean, standard deviation and number of seeds by group and metric.

    ``seconds`` and ``ratio`` (speed-up over Retrain in the same run) come from timed runs only. ``std`` is null for a
    single seed; ``spread`` is then the typical one of the metric: the root mean square of all known ones.
    """
    untimed_first = frame.sort(pl.col("timing") != "", maintain_order=True)
    once = untimed_first.unique(list(EXPERIMENT), keep="first", maintain_order=True)
    values = pl.concat([_long(once, [*ACCURACIES, *SIZES]), _long(_times(frame), TIMES)])
    summary = values.group_by([*GROUP, "metric"], maintain_order=True).agg(
        mean=pl.col("value").mean(), std=pl.col("value").std(), seeds=pl.len()
    )
    typical = pl.col("std").pow(2).mean().sqrt().over("metric")
    return summary.with_columns(spread=pl.coalesce("std", typical, pl.lit(0.0)))


def study_rows(summary: pl.DataFrame, study: str) -> pl.DataFrame:
    """The rows of a study with labels, in the order of the paper; empty if the study was not run.

    The paper's figures are metrics of their own, such as ``paper_hr``; so are log sizes as fractions of the item table.
    """
    places = summary.filter(_SIGNS[study]).select(PLACE).unique()
    if study == "storage":  # the attack does not affect the logs
        places = places.filter(pl.col("malicious") == pl.col("malicious").min().over("dataset", "model"))
    shown = _ROWS.get(study, _SIGNS[study]) & pl.col("metric").is_in(_METRICS[study])
    rows = with_labels(summary.filter(shown).join(places, on=PLACE, how="semi"))
    rows = pl.concat([rows, _printed(study, rows), _shares(rows)], how="diagonal")
    models = pl.col("model").replace_strict({name: place for place, name in enumerate(MODELS)}, default=len(MODELS))
    return rows.sort("dataset", models, "malicious", BY_VARIANT, "alpha", "lambda", "beta", maintain_order=True)


def with_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Add labels: ``pair`` (data set and model), ``share`` (of malicious users), ``place`` (both) and ``variant``."""
    names = pl.col("dataset").replace(DATASETS), pl.col("model").replace(MODELS)
    share = pl.format("{}%", (100 * pl.col("malicious")).round().cast(pl.Int64))
    place = pl.when(pl.col("malicious") > 0).then(pl.format("{}, {}", "pair", "share")).otherwise("pair")
    labels = {name: variant.label for name, variant in VARIANTS.items()}
    frame = frame.with_columns(pair=pl.format("{}, {}", *names), share=share, variant=pl.col("way").replace(labels))
    return frame.with_columns(place=place)


@cache
def paper_figures(study: str) -> pl.DataFrame:
    """The figures that the paper prints for a study, with accuracies and shares as fractions."""
    figures = pl.read_csv(files("fedforget.experiments").joinpath("paper.csv").read_bytes())
    percent = pl.col("metric").is_in(["hr", "ndcg", "share"])
    mean = pl.when(percent).then(pl.col("value") / 100).otherwise(pl.col("value"))
    return figures.filter(pl.col("study") == study).with_columns(mean=mean)


def wide(rows: pl.DataFrame, value: str, index: list[str], metrics: list[str]) -> pl.DataFrame:
    """One column for each metric, null where it was not measured."""
    columns = {metric: pl.col(value).filter(pl.col("metric") == metric).first() for metric in metrics}
    return rows.group_by(index, maintain_order=True).agg(**columns)


def _printed(study: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The paper's figures for the groups of some rows. The small number makes them round half up, as in the paper."""
    figures = paper_figures(study)
    on = [name for name in ("dataset", "model", "malicious", "way", "lambda") if not figures[name].null_count()]
    groups = rows.filter(pl.col("varied") != "alpha").unique(["place", "way", "lambda"], maintain_order=True)
    figures = figures.select(*on, pl.format("paper_{}", "metric").alias("metric"), mean=pl.col("mean") + 1e-11)
    return groups.drop("metric", "mean", "std").join(figures, on=on, maintain_order="left")


def _shares(rows: pl.DataFrame) -> pl.DataFrame:
    table = pl.col("mean").filter(pl.col("metric") == "item_table_bytes").first().over("place", "way")
    sizes = rows.filter(pl.col("metric").is_in(SIZES)).with_columns(mean=pl.col("mean") / table)
    return sizes.with_columns(metric=pl.format("share_{}", "metric"))


def _times(frame: pl.DataFrame) -> pl.DataFrame:
    """Times and speed-ups of timed runs, averaged over the runs of an experiment."""
    timed = frame.filter(pl.col("timing") != "")
    run = ["dataset", "model", "malicious", "seed", "rounds", "sampler", "beta", "timing"]
    retrain = timed.filter(pl.col("way") == "retrain").select(*run, retrain="seconds")
    joined = timed.join(retrain, on=run, how="left", maintain_order="left")
    means = pl.col("seconds").mean(), (pl.col("retrain") / pl.col("seconds")).mean().alias("ratio")
    return joined.group_by(list(EXPERIMENT), maintain_order=True).agg(*means)


def _long(frame: pl.DataFrame, metrics: list[str]) -> pl.DataFrame:
    """One row for each experiment and metric, with the settings that its variant uses."""
    variants = VARIANTS.values()
    defaults = {
        "way": list(VARIANTS),
        "default_alpha": [variant.log.share for variant in variants],
        "default_selection": [variant.log.selection for variant in variants],
        "default_lambda": [getattr(variant.method, "replay_fraction", 1.0) for variant in variants],
    }
    changed = pl.col("alpha").is_not_null() | pl.col("selection").is_not_null()
    varied = pl.when(changed).then(pl.lit("alpha")).when(pl.col("speedup").is_not_null()).then(pl.lit("lambda"))
    used = frame.join(pl.DataFrame(defaults), on="way", maintain_order="left").with_columns(
        varied.otherwise(pl.lit("")).alias("varied"),
        pl.coalesce("alpha", "default_alpha"),
        pl.coalesce("selection", "default_selection"),
        pl.coalesce("speedup", "default_lambda").alias("lambda"),
    )
    return used.unpivot(metrics, index=[*GROUP, "seed"], variable_name="metric").drop_nulls("value")
