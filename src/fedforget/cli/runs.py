"""``fedforget train``, ``evaluate`` and ``recommend``: a run folder and what can be done with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.requests import parse_user
from fedforget.data import NAMES, Interactions, load
from fedforget.device.compute import Compute
from fedforget.device.training import TRAINERS
from fedforget.errors import ConfigError
from fedforget.evaluation import Ranking
from fedforget.evaluation.ranking import check_same_catalogue
from fedforget.protocol.attack import Attack
from fedforget.server.presets import ROUNDS
from fedforget.simulation.federation import Federation
from fedforget.simulation.run_data import load_parts

Run = Annotated[Path, typer.Argument(help="The run folder.")]
K = Annotated[int, typer.Option("--k", "-k", help="Length of the list.")]
Workers = Annotated[int | None, typer.Option(help="Worker threads; default all cores.", rich_help_panel="Compute")]
Device = Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel="Compute")]


def train(
    out: Annotated[Path, typer.Option(help="The run folder; an existing run is continued.")],
    data: Annotated[
        str | None, typer.Argument(help=f"{', '.join(NAMES)}, or a file; not needed to continue a run.")
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
    test: opt.TestShare = 0.2,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
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
    given = {"--model": model, "--preset": preset, "--seed": seed, "--config": config, "--set": assignments}
    if data is None:
        for name, value in given.items():
            if value:
                raise ConfigError(f"{name} was given without data.", "A run keeps the settings it was started with.")
        fed, test_part = open_run(out, folder, compute)
    else:
        chosen = opt.run_config(model, preset, seed, config, assignments)
        options = file_options(user_column, item_column, separator)
        train_part, test_part = load(data, folder=folder, **options).split(test, chosen.seed)
        name = data if data in NAMES else str(Path(data).expanduser().resolve())
        if malicious is not None:
            attack = Attack.by(train_part.user_ids.tolist(), malicious, gamma=gamma, seed=chosen.seed)
            chosen = replace(chosen, attack=attack)
        source = {"name": name, "options": options, "test": test, "split_seed": chosen.seed}
        fed = Federation(train_part, chosen, path=out, compute=compute, source=source)
    _fit(fed, test_part, rounds, evaluate_every, as_json)


def _fit(fed: Federation, test_part: Interactions, rounds: int, evaluate_every: int | None, as_json: bool) -> None:
    """Train with a progress bar, and print the evaluation."""
    if fed.train.n_users < test_part.n_users:
        test_part = test_part.only(fed.members)
    check_same_catalogue(fed.train, test_part)
    attackers = () if fed.config.attack is None else fed.config.attack.users
    if attackers and not as_json:
        show.notes.print(f"{len(attackers):,} of {fed.train.n_users:,} users are malicious.")
    if fed.rounds >= rounds and not as_json:
        show.notes.print(f"{fed.rounds} rounds are done already: nothing to train.", markup=False)
    with show.rounds_bar(fed.rounds, rounds, quiet=as_json) as on_round:
        watched = test_part if evaluate_every is not None else None
        fed.fit(max(rounds, fed.rounds), test=watched, evaluate_every=evaluate_every, on_round=on_round)
    result = fed.evaluate(test_part)
    fed.close()
    head = {"run": str(fed.path), "rounds": fed.rounds, "malicious": len(attackers), "model": fed.model.settings()}
    show.result(
        head | result.to_dict(),
        as_json,
        show.evaluation_table(f"{fed.model.name}, {fed.rounds} rounds", result),
        f"Saved in {fed.path}. Next: fedforget recommend {fed.path} --user {fed.train.user_ids[0]}",
    )


def evaluate(
    run: Run,
    k: K = 10,
    per_user: Annotated[Path | None, typer.Option(help="Write one row per user to this CSV or Parquet file.")] = None,
    folder: Folder = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on the test part of its data, in both protocols."""
    if per_user is not None and (per_user.suffix not in (".csv", ".parquet") or not per_user.parent.is_dir()):
        raise ConfigError(f"Cannot write {per_user}.", "Give a .csv or .parquet file in an existing folder.")
    fed, test = open_run(run, folder, Compute(workers=workers))
    result = fed.evaluate(test, Ranking(k=k))
    if per_user is not None:
        frame = result.to_frame()
        (frame.write_csv if per_user.suffix == ".csv" else frame.write_parquet)(per_user)
    head = {"run": str(run), "rounds": fed.rounds, "model": fed.model.settings()}
    table = show.evaluation_table(f"{fed.model.name}, {fed.rounds} rounds", result)
    show.result(head | result.to_dict(), as_json, table)


def recommend(
    run: Run,
    user: Annotated[str, typer.Option(help="The user's id, as in the data.")],
    k: K = 10,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items that a user has not interacted with."""
    fed, _ = open_run(run, folder, Compute())
    wanted = parse_user(user, fed.members)
    best = fed.recommend(wanted, k)
    rows = [(str(rank), str(item), f"{score:.3f}") for rank, (item, score) in enumerate(best, 1)]
    table = show.table(["rank", "item", "score"], rows, left=["item"], title=f"For user {user}")
    listed = [{"item": item, "score": score} for item, score in best]
    show.result({"user": wanted, "items": listed}, as_json, table)


def open_run(run: Path, folder: Path | None, compute: Compute) -> tuple[Federation, Interactions]:
    """The federation in a run folder, with the test part of its data."""
    show.tell_if_compiling()
    train_part, test_part = load_parts(run, folder)
    return Federation.open(run, train_part, compute=compute), test_part
