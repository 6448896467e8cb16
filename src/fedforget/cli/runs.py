"""``fedforget train``, ``evaluate`` and ``recommend``: a run folder and what can be done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedforget.attacks import Attack
from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.requests import typed
from fedforget.data import NAMES, Interactions, load
from fedforget.device.compute import Compute
from fedforget.device.log.settings import STORES, Log
from fedforget.device.training import TRAINERS
from fedforget.errors import ConfigError
from fedforget.evaluation import Ranking
from fedforget.evaluation.ranking import check_same_catalogue
from fedforget.federation import Federation
from fedforget.presets import ROUNDS
from fedforget.reopening import load_parts, members_only
from fedforget.server.rounds import Protocol

Run = Annotated[Path, typer.Argument(help="The run folder.")]
K = Annotated[int, typer.Option("--k", "-k", help="The length of the list.")]
Workers = Annotated[int | None, typer.Option(help="Worker threads; all cores if not given.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


def train(
    out: Annotated[Path, typer.Option(help="The run folder; a run that is there goes on.")],
    data: Annotated[
        str | None, typer.Argument(help=f"{', '.join(NAMES)}, or the path of a file; not needed to go on with a run.")
    ] = None,
    model: opt.ModelName = "ials",
    rounds: Annotated[int, typer.Option(help="Train until so many rounds are done in all.")] = ROUNDS,
    seed: opt.Seed = 0,
    test: opt.TestShare = 0.2,
    preset: opt.Preset = "default",
    fraction: opt.Fraction = None,
    aggregation: opt.Aggregation = None,
    optimiser: opt.ServerOptimiser = None,
    server_lr: opt.ServerRate = None,
    horizon: opt.Horizon = None,
    snapshot_every: opt.SnapshotEvery = Protocol.snapshot_every,
    sampler: opt.SamplerKind = None,
    r: opt.PoolShare = None,
    beta: opt.Beta = None,
    epochs: opt.Epochs = None,
    batch: opt.Batch = None,
    lr: opt.LearningRate = None,
    refit: opt.Refit = None,
    dim: opt.Dim = None,
    init_std: opt.InitStd = None,
    loss: opt.Loss = None,
    negatives: opt.Negatives = None,
    reg: opt.Regularisation = None,
    log_encoding: opt.LogEncoding = Log.encoding,
    log_selection: opt.LogSelection = Log.selection,
    alpha: opt.Alpha = Log.alpha,
    quota: opt.QuotaBytes = Log.quota,
    when_full: opt.WhenFull = Log.when_full,
    log_store: Annotated[str, typer.Option(help=f"The logs' files: {', '.join(STORES)}.")] = Log.store,
    malicious: Annotated[float | None, typer.Option(help="The share of users who send poisoned updates.")] = None,
    gamma: Annotated[float, typer.Option(help="γmax, how strongly they push back.")] = Attack.gamma,
    evaluate_every: Annotated[int | None, typer.Option(help="Evaluate so often, into metrics.jsonl.")] = None,
    trainer: Annotated[str, typer.Option(help=f"One of {', '.join(TRAINERS)}.")] = Compute.trainer,
    device: Device = Compute.device,
    workers: Workers = None,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
    as_json: AsJson = False,
) -> None:
    """Train a federated recommender in a run folder; stop it at any time and go on with the same command.

    To go on with a run, its folder is enough: fedforget train --out RUN --rounds 300.
    """
    show.tell_if_compiling()
    if rounds < 0:
        raise ConfigError(f"rounds is {rounds}.", "Give 0 or more.")
    compute = Compute(trainer, device, workers)
    if data is None:
        fed, test_part = opened(out, folder, compute)
    else:
        options = file_options(user_column, item_column, separator)
        train_part, test_part = load(data, folder=folder, **options).split(test, seed)
        name = data if data in NAMES else str(Path(data).expanduser().resolve())
        built = opt.model_with(model, dim=dim, init_std=init_std, loss=loss, negatives=negatives, reg=reg)
        chosen = opt.recipe_with(
            preset, built, optimiser=optimiser, server_lr=server_lr, horizon=horizon, fraction=fraction,
            aggregation=aggregation, snapshot_every=snapshot_every, sampler=sampler, r=r, beta=beta, epochs=epochs,
            batch=batch, lr=lr, refit=refit,
        )  # fmt: skip
        fed = Federation(
            train_part,
            chosen.model,
            seed=seed,
            path=out,
            sampler=chosen.sampler,
            training=chosen.training,
            protocol=chosen.protocol,
            log=Log(log_encoding, log_selection, alpha, quota, when_full, log_store),
            attack=_attack(train_part, out, malicious, gamma, seed),
            compute=compute,
            source={"name": name, "options": options, "test": test, "split_seed": seed},
        )
    if fed.train.n_users < test_part.n_users:
        test_part = test_part.only(fed.train.user_ids.tolist())
    check_same_catalogue(fed.train, test_part)
    attackers = () if fed.settings.attack is None else fed.settings.attack.users
    if attackers and not as_json:
        show.notes.print(f"{len(attackers):,} of {fed.train.n_users:,} users are malicious.")
    if fed.rounds >= rounds and not as_json:
        show.notes.print(f"{fed.rounds} rounds are done already: nothing to train.", markup=False)
    with show.rounds_bar(fed.rounds, rounds, quiet=as_json) as on_round:
        watched = test_part if evaluate_every is not None else None
        fed.fit(max(rounds, fed.rounds), test=watched, evaluate_every=evaluate_every, on_round=on_round)
    result = fed.evaluate(test_part)
    fed.close()
    if as_json:
        head = {"run": str(out), "rounds": fed.rounds, "malicious": len(attackers), "model": fed.model.settings()}
        show.print_json({**head, **result.to_dict()})
        return
    show.out.print(show.evaluation_table({f"{fed.model.name}, {fed.rounds} rounds": result}))
    show.out.print(f"Saved in {out}. Next: fedforget recommend {out} --user {fed.train.user_ids[0]}", soft_wrap=True)


def evaluate(
    run: Run,
    k: K = 10,
    per_user: Annotated[Path | None, typer.Option(help="Write one row a user to this CSV or Parquet file.")] = None,
    folder: Folder = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on the test part of its data, in both protocols."""
    if per_user is not None and (per_user.suffix not in (".csv", ".parquet") or not per_user.parent.is_dir()):
        raise ConfigError(f"Cannot write {per_user}.", "Give a .csv or .parquet file in a folder that is there.")
    fed, test = opened(run, folder, Compute(workers=workers))
    result = fed.evaluate(test, Ranking(k=k))
    if per_user is not None:
        frame = result.to_frame()
        (frame.write_csv if per_user.suffix == ".csv" else frame.write_parquet)(per_user)
    if as_json:
        show.print_json({"run": str(run), "rounds": fed.rounds, "model": fed.model.settings(), **result.to_dict()})
        return
    show.out.print(show.evaluation_table({f"{fed.model.name}, {fed.rounds} rounds": result}))


def recommend(
    run: Run,
    user: Annotated[str, typer.Option(help="The user's id, as in the data.")],
    k: K = 10,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items that a user has not touched yet."""
    fed, _ = opened(run, folder, Compute())
    wanted = typed(user, fed.members)
    best = fed.recommend(wanted, k)
    if as_json:
        show.print_json({"user": wanted, "items": [{"item": item, "score": score} for item, score in best]})
        return
    table = Table(title=f"For user {user}")
    table.add_column("rank", justify="right")
    table.add_column("item")
    table.add_column("score", justify="right")
    for rank, (item, score) in enumerate(best, 1):
        table.add_row(str(rank), str(item), f"{score:.3f}")
    show.out.print(table)


def opened(run: Path, folder: Path | None, compute: Compute) -> tuple[Federation, Interactions]:
    """The federation in a run folder, with the test part of its data."""
    show.tell_if_compiling()
    train_part, test_part = load_parts(run, folder)
    return Federation.open(run, train_part, compute=compute), test_part


def _attack(train_part: Interactions, out: Path, share: float | None, gamma: float, seed: int) -> Attack | None:
    """The malicious users of a run: those drawn when it began, without whoever was forgotten since."""
    if share is None:
        return None
    drawn = Attack.by(train_part.user_ids.tolist(), share, gamma=gamma, seed=seed)
    members = set(members_only(out, train_part).user_ids.tolist())
    return drawn.without([user for user in drawn.users if user not in members])
