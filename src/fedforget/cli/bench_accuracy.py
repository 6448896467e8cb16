"""``fedforget bench accuracy``: accuracy of federated models and centralized baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.data import NAMES, Interactions, load
from fedforget.errors import ConfigError
from fedforget.experiments.benchmark_accuracy import AccuracySettings, accuracy_plot, bench_accuracy
from fedforget.experiments.central import CENTRAL, LABELS, select_central
from fedforget.runtime.files import make_folder, write_file
from fedforget.server.presets import ROUNDS

DATASETS = ("ml-100k", "steam-200k")
QUICK_ROUNDS = 20
#: The tuned ALS is fitted fifteen times, so it is not a default.
DEFAULTS = ",".join(name for name in CENTRAL if name != "als-tuned")
COLUMNS = ("", "sampled\nHR", "sampled\nNDCG", "full\nHR", "full\nNDCG", "full\nrecall", "of\nALS")
CAPTION = (
    "At {k}, in percent. Sampled: each test item is ranked among {candidates} others; full: among all items. "
    "Of ALS: full NDCG relative to ALS."
)
UNTUNED = " Baselines are not tuned to the data: {}."


def accuracy(
    data: Annotated[
        list[str] | None,
        typer.Argument(help=f"{', '.join(NAMES)}, or paths of files; default {' and '.join(DATASETS)}."),
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Federated models, comma-separated; default ials,lightgcn.")
    ] = None,
    central: Annotated[str, typer.Option(help=f"Baselines, comma-separated, of {', '.join(CENTRAL)}.")] = DEFAULTS,
    rounds: Annotated[int | None, typer.Option(help=f"Rounds of federated training; default {ROUNDS}.")] = None,
    preset: opt.BenchPreset = "default",
    seed: opt.BenchSeed = 0,
    test: opt.TestShare = 0.2,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_ROUNDS} rounds of ials on ml-100k, unless others are given.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write result.json, accuracy.png and accuracy.svg to this folder.")
    ] = None,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
    as_json: AsJson = False,
) -> None:
    """Compare federated models with popularity, item kNN, ALS and BPR on the same split."""
    names = opt.named_models(models or ("ials" if quick else "ials,lightgcn"))
    methods = select_central(central.split(","))
    wanted = data or DATASETS[: 1 if quick else None]
    datasets = load_all(wanted, folder, file_options(user_column, item_column, separator))
    if out is not None:
        make_folder(out, private=False)
    show.tell_if_compiling()
    rounds = rounds if rounds is not None else QUICK_ROUNDS if quick else ROUNDS
    result = bench_accuracy(
        datasets,
        names,
        AccuracySettings(rounds, seed, test, preset),
        central=methods,
        say=lambda line: show.notes.print(line, markup=False, soft_wrap=True),
    )
    if out is not None:
        write_file(out / "result.json", (json.dumps(result, indent=2) + "\n").encode(), private=False)
        for kind in ("png", "svg"):
            write_file(out / f"accuracy.{kind}", accuracy_plot(result, kind), private=False)
    tables = [accuracy_table(name, row, result["settings"]) for name, row in result["datasets"].items()]
    show.result(result, as_json, *tables, *([] if out is None else [f"Saved in {out}."]))


def load_all(wanted: Sequence[str], folder: Path | None, options: Mapping[str, Any]) -> dict[str, Interactions]:
    """All data sets; the options apply to files only."""
    if options and all(name in NAMES for name in wanted):
        raise ConfigError(
            f"--user-column, --item-column and --separator are for files, but {', '.join(wanted)} is a named data set.",
            "Leave them out, or give the path of a file.",
        )
    return {name: load(name, folder=folder, **({} if name in NAMES else options)) for name in wanted}


def accuracy_table(name: str, row: Mapping[str, Any], settings: Mapping[str, Any]) -> Table:
    """One row for each method, baselines first."""
    title = f"{name}: {row['users']:,} users, {row['items']:,} items, {row['interactions']:,} interactions"
    style: Any = {"caption": _caption(settings), "caption_justify": "left", "box": box.SIMPLE_HEAD}
    table = show.table(COLUMNS, [], title=title, **style)
    for column in table.columns[1:]:
        column.no_wrap = True
    reference = row["als"]["full"]["ndcg"] if "als" in row else 0.0
    methods = [method for method in CENTRAL if method in row]
    for method in methods:
        table.add_row(LABELS[method], *_shown(row[method], reference), end_section=method == methods[-1])
    for model, found in row["models"].items():
        table.add_row(f"Fed-{model}, {found['rounds']} rounds", *_shown(found, reference))
    return table


def _caption(settings: Mapping[str, Any]) -> str:
    fixed = [
        f"{LABELS[method]} {', '.join(f'{key} {value}' for key, value in chosen.items())}"
        for method, chosen in settings["central"].items()
        if chosen and method != "als-tuned"
    ]
    return CAPTION.format(**settings) + (UNTUNED.format("; ".join(fixed)) if fixed else "")


def _shown(found: Mapping[str, Any], reference: float) -> list[str]:
    values = [*found["sampled"].values(), *found["full"].values()]
    share = f"{found['full']['ndcg'] / reference:.0%}" if reference else "–"
    return [*(f"{100 * value:.1f}" for value in values), share]
