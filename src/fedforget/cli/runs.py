"""``fedforget train``, ``evaluate``, ``recommend`` and ``export``: a run folder and what can be done with it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import (
    AsJson,
    Folder,
    ItemColumn,
    MinRating,
    RatingColumn,
    Separator,
    TimeColumn,
    UserColumn,
    file_options,
)
from fedforget.cli.ids import KnownIds
from fedforget.cli.source import source_name
from fedforget.data import NAMES, load
from fedforget.data.interactions import SPLITS
from fedforget.device.compute import Compute
from fedforget.device.training import TRAINERS
from fedforget.errors import ConfigError
from fedforget.evaluation import Ranking
from fedforget.protocol.attack import Attack
from fedforget.runtime.files import make_folder
from fedforget.server.presets import ROUNDS
from fedforget.server.run_config import RunConfig
from fedforget.simulation.federation import Federation

Run = Annotated[Path, typer.Argument(help="The run folder.")]
K = Annotated[int, typer.Option("--k", "-k", help="Length of the list.")]
Workers = Annotated[int | None, typer.Option(help="Worker threads; default all cores.", rich_help_panel="Compute")]
Device = Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel="Compute")]


def train(
    out: Annotated[Path, typer.Option(help="The run folder; an existing run is continued.")],
    data: Annotated[
        str | None, typer.Argument(help=f"{', '.join(NAMES)}, or a file; not needed to continue a run.")
    ] = None,
    data_option: Annotated[
        str | None, typer.Option("--data", help="The same as DATA; for an existing run, where its data is now.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Train until this many rounds are done in all.")] = ROUNDS,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Rounds between evaluations, written to metrics.jsonl.")
    ] = None,
    as_json: AsJson = False,
    model: opt.ModelName = None,
    preset: opt.Preset = None,
    seed: opt.Seed = None,
    config: opt.ConfigFile = None,
    assignments: opt.Assignments = None,
    test: opt.NewTestShare = None,
    split: Annotated[
        str | None,
        typer.Option(help=f"Which items are kept: {' (default) or '.join(SPLITS)} (latest).", rich_help_panel="Data"),
    ] = None,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
    time_column: TimeColumn = None,
    rating_column: RatingColumn = None,
    min_rating: MinRating = None,
    evaluate: Annotated[bool, typer.Option(help="Evaluate at the end.")] = True,
    malicious: Annotated[
        float | None, typer.Option(help="Fraction of users who send poisoned updates.", rich_help_panel="Experiments")
    ] = None,
    gamma: Annotated[
        float, typer.Option(help="γmax, the largest factor of their attack.", rich_help_panel="Experiments")
    ] = Attack.gamma,
    trainer: Annotated[str, typer.Option(help=", ".join(TRAINERS) + ".", rich_help_panel="Compute")] = Compute.trainer,
    device: Device = Compute.device,
    workers: Workers = None,
) -> None:
    """Train a federated recommender in a run folder. Stop it at any time; the same command continues.

    To continue a run its folder is enough: fedforget train --out RUN --rounds 300.
    """
    show.tell_if_compiling()
    if rounds < 0:
        raise ConfigError(f"rounds is {rounds}.", "Give 0 or more.")
    compute = Compute(trainer, device, workers)
    given: dict[str, object] = {
        "--model": model,
        "--preset": preset,
        "--seed": seed,
        "--config": config,
        "--set": assignments or None,
    }
    given |= {"--test": test, "--split": split, "--malicious": malicious}
    if data is not None and data_option is not None:
        raise ConfigError(f"Both DATA ({data}) and --data ({data_option}) were given.", "Give one of them.")
    data = data or data_option
    exists = (out / "config.toml").exists()
    options = file_options(user_column, item_column, separator, time_column, rating_column, min_rating)
    if data is None:
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"{name} was given without data.", "A run keeps the settings it was started with.")
        fed = open_run(out, compute)
    elif exists and not any(value is not None for value in given.values()):
        stored = {} if options else RunConfig.load(out / "config.toml").data.get("options", {})
        options = options or dict(stored)
        fed = Federation.open(out, load(data, folder=folder, **options), compute=compute)
    else:
        chosen = opt.run_config(model, preset, seed, config, assignments)
        test, split = 0.2 if test is None else test, split or SPLITS[0]
        train_part, test_part = load(data, folder=folder, **options).split(test, chosen.seed, split)
        if malicious is not None:
            attack = Attack.by(train_part.user_ids.tolist(), malicious, gamma=gamma, seed=chosen.seed)
            chosen = replace(chosen, attack=attack)
        source = {
            "name": source_name(data),
            "options": options,
            "test": test,
            "split": split,
            "split_seed": chosen.seed,
        }
        fed = Federation(train_part, chosen, test=test_part, path=out, compute=compute, source=source)
    with closing(fed):
        if data is not None and exists:
            fed.set_source({"name": source_name(data), "options": options})
        _fit(fed, rounds, evaluate_every, evaluate, as_json)


def _fit(fed: Federation, rounds: int, evaluate_every: int | None, evaluate: bool, as_json: bool) -> None:
    """Train with a progress bar, and print the evaluation."""
    test = fed.test if fed.test is not None and len(fed.test) else None
    if evaluate_every is not None and test is None:
        raise ConfigError("--evaluate-every was given, but the run has no test part.", "Leave it out.")
    attackers = () if fed.config.attack is None else fed.config.attack.users
    if attackers and not as_json:
        show.notes.print(f"{len(attackers):,} of {fed.train.n_users:,} users are malicious.")
    if fed.rounds >= rounds and not as_json:
        show.notes.print(f"{fed.rounds} rounds are done already: nothing to train.", markup=False)
    with show.rounds_bar(fed.rounds, rounds, quiet=as_json) as on_round:
        watched = test if evaluate_every is not None else None
        fed.fit(max(rounds, fed.rounds), test=watched, evaluate_every=evaluate_every, on_round=on_round)
    head = {"run": str(fed.path), "rounds": fed.rounds, "malicious": len(attackers), "model": fed.model.settings()}
    shown: list[Any] = []
    if evaluate and test is not None:
        result = fed.evaluate(test)
        head |= result.to_dict()
        shown.append(show.evaluation_table(f"{fed.model.name}, {fed.rounds} rounds", result))
    user = fed.train.user_ids[0]
    show.result(head, as_json, *shown, f"Saved in {fed.path}. Next: fedforget recommend {fed.path} --user {user}")


def evaluate(
    run: Run,
    k: K = 10,
    per_user: Annotated[Path | None, typer.Option(help="Write one row per user to this CSV or Parquet file.")] = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on the test part of its data, in both protocols."""
    check_table_file(per_user)
    fed = open_run(run, Compute(workers=workers))
    result = fed.evaluate(ranking=Ranking(k=k))
    write_table(result.to_frame(), per_user)
    head = {"run": str(run), "rounds": fed.rounds, "model": fed.model.settings()}
    table = show.evaluation_table(f"{fed.model.name}, {fed.rounds} rounds", result)
    show.result(head | result.to_dict(), as_json, table)


def recommend(
    run: Run,
    user: Annotated[str | None, typer.Option(help="The user's id, as in the data.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Recommend for all users.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write user, rank, item and score to a CSV or Parquet file.")] = None,
    k: K = 10,
    candidates: opt.Candidates = None,
    exclude: opt.Exclude = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items that a user does not have."""
    if (user is None) == (not everyone):
        raise ConfigError("The users are not named.", "Give either --user ID or --all.")
    if everyone and out is None:
        raise ConfigError("--all was given without --out.", "Name a file: --all --out recommendations.parquet")
    check_table_file(out)
    fed = open_run(run, Compute(workers=workers))
    items = fed.train.item_ids.tolist()
    catalogue = KnownIds(items, "item")
    chosen = None if candidates is None else catalogue.parse_all(candidates)
    left_out = catalogue.parse_all(exclude or [])
    wanted = None if user is None else [KnownIds(fed.members).parse(user)]
    frame = fed.recommend_all(k, wanted, candidates=chosen, exclude=left_out)
    write_table(frame, out)
    if wanted is None:
        summary = {"users": fed.train.n_users, "recommendations": frame.height, "out": str(out)}
        show.result(summary, as_json, f"{frame.height:,} recommendations for {fed.train.n_users:,} users are in {out}.")
        return
    rows = [(str(rank), str(item), f"{score:.3f}") for _, rank, item, score in frame.iter_rows()]
    table = show.table(["rank", "item", "score"], rows, left=["item"], title=f"For user {user}")
    listed = frame.select("item", "score").to_dicts()
    show.result({"user": wanted[0], "items": listed}, as_json, table)


def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="The folder for items.parquet and users.parquet.")],
    as_json: AsJson = False,
) -> None:
    """Export item and user vectors. Their dot product scores items that a user does not have."""
    fed = open_run(run)
    make_folder(out, private=False)
    written = {}
    for name, frame in (("items", fed.item_vectors()), ("users", fed.user_vectors())):
        frame.write_parquet(out / f"{name}.parquet")
        written[name] = frame.height
    text = f"{written['items']:,} item vectors and {written['users']:,} user vectors are in {out}."
    show.result({"out": str(out), **written}, as_json, text)


def open_run(run: Path, compute: Compute | None = None) -> Federation:
    """The federation in a run folder."""
    show.tell_if_compiling()
    return Federation.open(run, compute=compute)


def check_table_file(path: Path | None) -> None:
    """Refuse a file that a table cannot be written to, before work is done."""
    if path is not None and (path.suffix not in (".csv", ".parquet") or not path.parent.is_dir()):
        raise ConfigError(f"Cannot write {path}.", "Give a .csv or .parquet file in an existing folder.")


def write_table(frame: pl.DataFrame, path: Path | None) -> None:
    """Write a table to a CSV or Parquet file, if one is given."""
    if path is not None:
        (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)
