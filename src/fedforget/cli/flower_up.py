"""``fedforget flower up``: a whole federation on Flower on this machine, to try it out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import Data, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.ids import KnownIds
from fedforget.data import load
from fedforget.protocol.training import SMALLEST_SUM
from fedforget.server.unlearning import default_method

#: Defaults of a trial, which has few users.
DEFAULTS = {"fraction": 0.5, "secure": True, "minimum": SMALLEST_SUM}


def up(
    data: Data,
    num_devices: Annotated[int, typer.Option(help="Number of nodes; users are distributed among them.")] = 3,
    num_users: Annotated[int | None, typer.Option(help="Number of users; the first ones of the data.")] = 12,
    out: Annotated[Path, typer.Option(help="Folder for everything; a federation in it is continued.")] = Path(
        "flower-trial"
    ),
    rounds: Annotated[int, typer.Option(help="Train until this many rounds are done in all.")] = 3,
    forget: Annotated[
        list[str] | None,
        typer.Option(help="Then forget these users (ids separated by commas), and train one more round."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds after which a round closes without late devices.")] = 120.0,
    model: opt.ModelName = None,
    preset: opt.Preset = None,
    seed: opt.Seed = None,
    config: opt.ConfigFile = None,
    assignments: opt.Assignments = None,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
) -> None:
    """Try a federation on this machine: SuperLink and SuperNodes with TLS and node keys; all stopped at the end.

    Half of the users take part in a round, unless --set server.fraction says otherwise; the server learns only sums
    over three users or more, unless --set server.secure=false. Every round takes some seconds: each message starts a
    process on each node.
    """
    from fedforget.flower.testbed.trial import Trial

    chosen = opt.run_config(model, preset, seed, config, assignments, DEFAULTS)
    interactions = load(data, folder=folder, **file_options(user_column, item_column, separator))
    interactions = interactions.only(interactions.user_ids[:num_users].tolist())
    train_part, test_part = interactions.split(0.2, chosen.seed)
    forgotten = KnownIds(train_part.user_ids.tolist()).parse_all(forget or [])
    show.notes.print(f"Starting a network of {num_devices} nodes for {train_part.n_users} users in {out} …")
    with Trial(out, replace(chosen, engine="flower"), train_part, test_part, num_devices) as trial:
        show.notes.print(f"The SuperLink is at {trial.network.address}; to forget someone, in another terminal:")
        show.notes.print(f"  fedforget forget {trial.run} --users {train_part.user_ids[0]}", soft_wrap=True)
        trial.serve(rounds, timeout, evaluate_every=rounds, tell=_tell)
        if forgotten:
            request = trial.forget(forgotten, default_method(chosen.model))
            trial.serve(rounds + 1, timeout, evaluate_every=rounds + 1, tell=_tell)
            show.lines(f"The salt of request {request.id} is {request.salt}.")
    show.lines(f"Everything is stopped. Next: fedforget flower status {trial.run}")


def _tell(line: str) -> None:
    """Print a line of the server app, without Flower's own messages."""
    if line.strip() and not line.startswith(("INFO :", "Successfully installed")):
        show.lines(line)
