"""``fedforget flower``: a federation on a real network, step by step, or all of it on one machine to try it out."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.requests import looked_at, typed
from fedforget.cli.runs import Run
from fedforget.data import NAMES, Interactions, load
from fedforget.data.ids import checked_ids, factorised
from fedforget.device.host import Host
from fedforget.device.log.settings import Log
from fedforget.device.member import TEST, TRAIN
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError
from fedforget.invitation import NAME, Invitation
from fedforget.models import build_model
from fedforget.server.registry import Registry
from fedforget.server.rounds import Protocol
from fedforget.server.unlearning import FRU
from fedforget.service import found
from fedforget.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Run a federation on a real network, with Flower.")

Data = Annotated[str, typer.Option(help=f"{', '.join(NAMES)}, or the path of a file.")]
State = Annotated[Path, typer.Option(help="The folder of this device's users' files.")]
Users = Annotated[str, typer.Option(help="User ids, separated by commas.")]


@app.callback()
def refuse_without_flower() -> None:
    """Say what is missing if Flower is not installed."""
    if find_spec("flwr") is None:
        raise ConfigError("Flower is not installed.", "pip install 'fedforget[flower]'")


@app.command("found")
def found_command(
    run: Run,
    items: Annotated[Path, typer.Option(help="A file with the ids of all items that can be recommended, one a line.")],
    model: opt.ModelName = "lightgcn",
    seed: opt.Seed = 0,
    fraction: opt.Fraction = Protocol.fraction,
    aggregation: opt.Aggregation = Protocol.aggregation,
    snapshot_every: opt.SnapshotEvery = Protocol.snapshot_every,
    sampler: opt.SamplerKind = Sampler.kind,
    r: opt.PoolShare = Sampler.R,
    beta: opt.Beta = Sampler.beta,
    epochs: opt.Epochs = LocalTraining.epochs,
    batch: opt.Batch = LocalTraining.batch,
    lr: opt.LearningRate = LocalTraining.lr,
    dim: opt.Dim = None,
    init_std: opt.InitStd = None,
    loss: opt.Loss = None,
    negatives: opt.Negatives = None,
    log_encoding: opt.LogEncoding = Log.encoding,
    log_selection: opt.LogSelection = Log.selection,
    alpha: opt.Alpha = Log.alpha,
    quota: opt.QuotaBytes = Log.quota,
    when_full: opt.WhenFull = Log.when_full,
) -> None:
    """On the server: begin a federation in a run folder, and write the invitation for those who join."""
    settings = Settings(
        opt.model_with(model, dim=dim, init_std=init_std, loss=loss, negatives=negatives),
        Sampler(sampler, r, beta),
        LocalTraining(epochs, batch, lr),
        Protocol(fraction, aggregation, snapshot_every),
        seed,
        log=Log(log_encoding, log_selection, alpha, quota, when_full),
        engine="flower",
    )
    invitation = found(run, settings, _catalogue(items))
    show.out.print(
        f"Federation {invitation.terms.federation} over {invitation.terms.n_items:,} items is in {run}.\n"
        f"Hand {run / NAME} to every device. On each:\n"
        f"  fedforget flower enrol --invitation {NAME} --state FOLDER --user ID --data FILE\n"
        f"and here, with the public key of its node and the id that Flower gave it:\n"
        f"  fedforget flower register {run} --key NODE.pub --node-id ID --users IDS",
        soft_wrap=True,
    )


@app.command()
def register(
    run: Run,
    key: Annotated[Path, typer.Option(help="The node's public key, as registered with the SuperLink.")],
    node_id: Annotated[int, typer.Option(help="The id that `flwr supernode register` printed.")],
    users: Users,
) -> None:
    """On the server: let a node, known by its key, speak for some users."""
    service = looked_at(run)
    wanted = [typed(given, service.members) for given in _split(users)]
    service.close()
    try:
        text = key.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key} cannot be read: {error}.", "Give the .pub file of the node's key.") from error
    with closing(Registry(run)) as registry:
        registry.register(text, node_id, wanted)
    show.out.print(f"Node {node_id} speaks for {', '.join(map(str, wanted))} from the next round on.", soft_wrap=True)


@app.command()
def release(run: Run, users: Users) -> None:
    """On the server: let nobody speak for some users until they are registered again, say with a new device."""
    service = looked_at(run)
    wanted = [typed(given, service.members) for given in _split(users)]
    service.registry.release(wanted)
    service.close()
    show.out.print(f"No node speaks for {', '.join(map(str, wanted))} now; they are members still.", soft_wrap=True)


@app.command()
def enrol(
    invitation: Annotated[Path, typer.Option(help="The invitation that the server wrote.")],
    state: State,
    user: Users,
    data: Data,
    test: opt.TestShare = 0.2,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
) -> None:
    """On a device: let users of it join a federation with their interactions, which stay here."""
    given = Invitation.load(invitation)
    everything = load(data, folder=folder, **file_options(user_column, item_column, separator))
    train_part, test_part = everything.split(test, given.terms.seed)
    known = everything.user_ids.tolist()
    for name in (typed(one, known) for one in _split(user)):
        parts = given.parts(train_part, test_part, name)
        Host(state).enrol(given.terms, name, **parts)
        show.out.print(
            f"User {name} has joined federation {given.terms.federation} with {len(parts[TRAIN])} items to train on "
            f"and {len(parts[TEST])} to test with.",
            soft_wrap=True,
        )


@app.command()
def wipe(state: State, federation: Annotated[str, typer.Option(help="The federation's id.")], user: Users) -> None:
    """On a device: remove everything that it keeps of some users, without waiting for the server to ask for it."""
    for given in _split(user):
        gone = Host(state).remove(federation, given)
        text = "Nothing is kept here of" if gone else "Nothing was kept here of"
        show.out.print(f"{text} user {given}{' any more' if gone else ''}.", soft_wrap=True)


@app.command("app")
def app_command(folder: Annotated[Path, typer.Argument(help="The folder to write.")]) -> None:
    """Write the Flower app: a folder for `flwr run` that names the installed fedforget and carries no code."""
    from fedforget.engines.flower.app import write_app
    from fedforget.engines.flower.server_app import CONFIG

    write_app(folder, CONFIG)
    show.out.print(
        f"Start the server with:\n  flwr run {folder} LINK --stream --run-config 'run=\"/path/of/RUN\" rounds=100'\n"
        f"Its settings: {', '.join(f'{name}={value!r}' for name, value in CONFIG.items())}.",
        soft_wrap=True,
    )


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    host: Annotated[list[str], typer.Option(help="A name or address by which devices reach the server; repeatable.")],
) -> None:
    """Make a certificate for the SuperLink, and the authority that devices check it against."""
    from fedforget.engines.flower.credentials import make_certificates

    files = make_certificates(folder, host)
    show.out.print(
        f"{files.certificate} and {files.key} are the SuperLink's; {files.authority} goes to every device.",
        soft_wrap=True,
    )


@app.command()
def status(run: Run, as_json: AsJson = False) -> None:
    """On the server: how far it is, who is registered, what waits to be forgotten or wiped."""
    service = looked_at(run)
    waiting = [*([service.waiting] if service.waiting else []), *service.queue.waiting()]
    figures = {
        "federation": service.settings.id,
        "rounds": service.rounds,
        "members": len(service.members),
        "nodes": len(service.registry.by_node()),
        "waiting": list(dict.fromkeys(request.id for request in waiting)),
        "refused": service.queue.refused(),
        "forgotten": sum(len(receipt.users) for receipt in service.receipts()),
        "unconfirmed wipes": len(service.registry.wipe_orders()),
    }
    service.close()
    if as_json:
        show.print_json({"run": str(run), **figures})
        return
    table = Table(title=f"{run}", show_header=False)
    for name, value in figures.items():
        shown = value if not isinstance(value, dict) else "\n".join(f"{key}: {text}" for key, text in value.items())
        table.add_row(name, ", ".join(shown) if isinstance(shown, list) else str(shown))
    show.out.print(table)


@app.command()
def up(
    data: Data,
    devices: Annotated[int, typer.Option(help="How many nodes; the users are dealt out to them.")] = 3,
    users: Annotated[int | None, typer.Option(help="Only so many of the users.")] = 12,
    out: Annotated[Path, typer.Option(help="The folder for everything; a federation that is there goes on.")] = Path(
        "flower-trial"
    ),
    rounds: Annotated[int, typer.Option(help="Train until so many rounds are done in all.")] = 3,
    forget: Annotated[str | None, typer.Option(help="Then forget these users, and train one round more.")] = None,
    model: opt.ModelName = "lightgcn",
    seed: opt.Seed = 0,
    fraction: opt.Fraction = 0.5,
    epochs: opt.Epochs = LocalTraining.epochs,
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
    settings = Settings(
        build_model(model), training=LocalTraining(epochs), protocol=Protocol(fraction), seed=seed,
        log=Log(log_encoding), engine="flower",
    )  # fmt: skip
    leavers = [typed(given, train_part.user_ids.tolist()) for given in _split(forget or "")]
    show.notes.print(f"Starting a network of {devices} nodes for {train_part.n_users} users in {out} …")
    with Trial(out, settings, train_part, test_part, devices) as trial:
        show.notes.print(f"The SuperLink is at {trial.network.address}; in another terminal you can ask it to forget:")
        show.notes.print(f"  fedforget forget {trial.run} --users {train_part.user_ids[0]}", soft_wrap=True)
        trial.serve(rounds, timeout, evaluate_every=rounds, tell=_tell)
        if leavers:
            request = trial.forget(leavers, FRU())
            trial.serve(rounds + 1, timeout, evaluate_every=rounds + 1, tell=_tell)
            show.out.print(f"The salt of request {request.id} is {request.salt}.", soft_wrap=True)
    show.out.print(f"Everything is down. Next: fedforget flower status {trial.run}", soft_wrap=True)


def _tell(line: str) -> None:
    """A line of the server app, without what Flower says of itself."""
    if line.strip() and not line.startswith(("INFO :", "Successfully installed")):
        show.out.print(line, soft_wrap=True)


def _few(data: Interactions, users: int | None) -> Interactions:
    return data if users is None or users >= data.n_users else data.only(data.user_ids[:users].tolist())


def _split(ids: str) -> list[str]:
    return [part.strip() for part in ids.split(",") if part.strip()]


def _catalogue(path: Path) -> list[int | str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "Give a text file with one item id a line.") from error
    named = [line for line in lines if line]
    if not named:
        raise ConfigError(f"{path} names no items.", "Give one item id a line.")
    whole = all(line.isascii() and line.isdecimal() and str(int(line)) == line for line in named)
    ids, _ = factorised(checked_ids([int(line) for line in named] if whole else named, "item", str(path)))
    items: list[int | str] = ids.tolist()
    return items
