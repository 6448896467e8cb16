"""``fedforget flower up``: a whole federation on Flower on this machine, to try it out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import Data, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.requests import split_ids, typed
from fedforget.data import Interactions, load
from fedforget.device.log.settings import Log
from fedforget.models import build_model
from fedforget.server.unlearning import default_method
from fedforget.settings import Settings


def up(
    data: Data,
    devices: Annotated[int, typer.Option(help="How many nodes; the users are dealt out to them.")] = 3,
    users: Annotated[int | None, typer.Option(help="Only so many of the users.")] = 12,
    out: Annotated[Path, typer.Option(help="The folder for everything; a federation that is there goes on.")] = Path(
        "flower-trial"
    ),
    rounds: Annotated[int, typer.Option(help="Train until so many rounds are done in all.")] = 3,
    forget: Annotated[str | None, typer.Option(help="Then forget these users, and train one round more.")] = None,
    model: opt.ModelName = "ials",
    seed: opt.Seed = 0,
    fraction: opt.Fraction = 0.5,
    epochs: opt.Epochs = None,
    timeout: Annotated[float, typer.Option(help="After so many seconds a round closes with whoever answered.")] = 120.0,
    log_encoding: opt.LogEncoding = Log.encoding,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
) -> None:
    """Try it out on this machine: a SuperLink and SuperNodes with TLS and node keys, a federation, and all down again.

    Every round costs some seconds: each message starts a process on each node.
    """
    from fedforget.engines.flower.trial import Trial

    everything = load(data, folder=folder, **file_options(user_column, item_column, separator))
    train_part, test_part = _few(everything, users).split(0.2, seed)
    built = build_model(model)
    chosen = opt.recipe_with("default", built, fraction=fraction, epochs=epochs)
    settings = Settings(
        built, chosen.sampler, chosen.training, chosen.protocol, seed, log=Log(log_encoding), engine="flower"
    )
    leavers = [typed(given, train_part.user_ids.tolist()) for given in split_ids(forget or "")]
    show.notes.print(f"Starting a network of {devices} nodes for {train_part.n_users} users in {out} …")
    with Trial(out, settings, train_part, test_part, devices) as trial:
        show.notes.print(f"The SuperLink is at {trial.network.address}; in another terminal you can ask it to forget:")
        show.notes.print(f"  fedforget forget {trial.run} --users {train_part.user_ids[0]}", soft_wrap=True)
        trial.serve(rounds, timeout, evaluate_every=rounds, tell=_tell)
        if leavers:
            request = trial.forget(leavers, default_method(built))
            trial.serve(rounds + 1, timeout, evaluate_every=rounds + 1, tell=_tell)
            show.out.print(f"The salt of request {request.id} is {request.salt}.", soft_wrap=True)
    show.out.print(f"Everything is down. Next: fedforget flower status {trial.run}", soft_wrap=True)


def _tell(line: str) -> None:
    """A line of the server app, without what Flower says of itself."""
    if line.strip() and not line.startswith(("INFO :", "Successfully installed")):
        show.out.print(line, soft_wrap=True)


def _few(data: Interactions, users: int | None) -> Interactions:
    return data if users is None or users >= data.n_users else data.only(data.user_ids[:users].tolist())
