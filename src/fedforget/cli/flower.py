"""``fedforget flower``: what the operator of a federation on a real network does, on the server."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.flower_device import Users, enrol, wipe
from fedforget.cli.flower_up import up
from fedforget.cli.requests import looked_at, split_ids, typed
from fedforget.cli.runs import Run
from fedforget.data.ids import checked_ids, factorised
from fedforget.device.log.settings import Log
from fedforget.errors import ConfigError
from fedforget.invitation import NAME
from fedforget.server.registry import Registry
from fedforget.server.rounds import Protocol
from fedforget.service import found
from fedforget.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Run a federation on a real network, with Flower.")
app.command()(up)
app.command()(enrol)
app.command()(wipe)


@app.callback()
def refuse_without_flower() -> None:
    """Say what is missing if Flower is not installed."""
    if find_spec("flwr") is None:
        raise ConfigError("Flower is not installed.", "pip install 'fedforget[flower]'")


@app.command("found")
def found_command(
    run: Run,
    items: Annotated[Path, typer.Option(help="A file with the ids of all items that can be recommended, one a line.")],
    model: opt.ModelName = "ials",
    seed: opt.Seed = 0,
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
) -> None:
    """On the server: begin a federation in a run folder, and write the invitation for those who join."""
    built = opt.model_with(model, dim=dim, init_std=init_std, loss=loss, negatives=negatives, reg=reg)
    chosen = opt.recipe_with(
        preset, built, optimiser=optimiser, server_lr=server_lr, horizon=horizon, fraction=fraction,
        aggregation=aggregation, snapshot_every=snapshot_every, sampler=sampler, r=r, beta=beta, epochs=epochs,
        batch=batch, lr=lr, refit=refit,
    )  # fmt: skip
    settings = Settings(
        chosen.model,
        chosen.sampler,
        chosen.training,
        chosen.protocol,
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
    wanted = [typed(given, service.members) for given in split_ids(users)]
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
    wanted = [typed(given, service.members) for given in split_ids(users)]
    service.registry.release(wanted)
    service.close()
    show.out.print(f"No node speaks for {', '.join(map(str, wanted))} now; they are members still.", soft_wrap=True)


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
