"""``fedforget flower``: commands for the operator of a federation on a network."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
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
from fedforget.cli.ids import KnownIds, read_ids
from fedforget.cli.runs import Run
from fedforget.data.ids import checked_ids, factorised
from fedforget.errors import ConfigError
from fedforget.protocol.invitation import NAME
from fedforget.server.server_config import ServerConfig
from fedforget.server.service import create_federation, open_service

app = typer.Typer(no_args_is_help=True, help="Run a federation on a real network, with Flower.")
app.command()(up)
app.command()(enrol)
app.command()(wipe)


@app.callback()
def refuse_without_flower() -> None:
    """Say what is missing if Flower is not installed."""
    if find_spec("flwr") is None:
        raise ConfigError("Flower is not installed.", "pip install 'fedforget[flower]'")


@app.command("create")
def create_command(
    run: Run,
    items: Annotated[Path, typer.Option(help="A file with the ids of all items in the catalogue, one per line.")],
    model: opt.ModelName = None,
    preset: opt.Preset = None,
    seed: opt.Seed = None,
    config: opt.ConfigFile = None,
    assignments: opt.Assignments = None,
) -> None:
    """On the server: create a federation in a run folder, with the invitation for its devices.

    The server learns only sums of updates (secure aggregation), unless --set server.secure=false.
    """
    chosen = replace(opt.run_config(model, preset, seed, config, assignments, {"secure": True}), engine="flower")
    invitation = create_federation(run, chosen, _catalogue(items))
    show.lines(
        f"Federation {invitation.terms.federation} over {invitation.terms.n_items:,} items is in {run}.\n"
        f"Copy {run / NAME} to every device. On each:\n"
        f"  fedforget flower enrol --invitation {NAME} --state FOLDER --users IDS --data FILE\n"
        f"and here, with the public key of its node and the id that Flower gave it:\n"
        f"  fedforget flower register {run} --key NODE.pub --node-id ID --users IDS\n{_aggregation(chosen.server)}"
    )


def _aggregation(server: ServerConfig) -> str:
    """What the server learns, and how many users that needs."""
    if not server.secure:
        return "Updates are plain: the server can tell which items a user has. See docs/privacy.md."
    return (
        f"Updates are secure: the server learns sums over {server.minimum} users or more. Training needs at least "
        f"{server.minimum} users, forgetting one of them at least {2 * server.minimum}; for fewer, "
        "--set server.minimum=3."
    )


@app.command()
def register(
    run: Run,
    key: Annotated[Path, typer.Option(help="The node's public key, as registered with the SuperLink.")],
    node_id: Annotated[int, typer.Option(help="The id that `flwr supernode register` printed.")],
    users: Users,
    readmit: Annotated[
        bool, typer.Option("--readmit", help="Accept users who were forgotten; they start anew.")
    ] = False,
) -> None:
    """On the server: register users with the node, known by its key, that hosts them."""
    try:
        text = key.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key} cannot be read: {error}.", "Give the .pub file of the node's key.") from error
    with closing(open_service(run)) as service:
        wanted = KnownIds(service.members).parse_all(users)
        service.register(text, node_id, wanted, readmit=readmit)
    show.lines(f"Node {node_id} hosts {', '.join(map(str, wanted))} from the next round on.")


@app.command("add-items")
def add_items(
    run: Run,
    items: Annotated[Path, typer.Option(help="A file with item ids, one per line.")],
    as_json: AsJson = False,
) -> None:
    """On the server: add items to the catalogue. They count from the next round on; devices get them with it."""
    with closing(open_service(run)) as service:
        listed = _catalogue(items, whole=isinstance(service.catalogue()[0], int))
        new = service.add_items(listed)
    known = len(listed) - len(new)
    text = f"Added {len(new):,} items to the catalogue of {run}; {known:,} were in it already."
    show.result({"run": str(run), "added": len(new), "known": known}, as_json, text)


@app.command()
def release(run: Run, users: Users) -> None:
    """On the server: release users from their node, so that they can be registered with another one."""
    service = open_service(run)
    wanted = KnownIds(service.members).parse_all(users)
    service.registry.release(wanted)
    service.close()
    show.lines(f"No node hosts {', '.join(map(str, wanted))} now; they are still members.")


@app.command("give-up")
def give_up(
    run: Run,
    request: Annotated[str, typer.Option(help="The id of the erasure request.")],
    yes: opt.Yes = False,
) -> None:
    """On the server: give up wipe orders to devices that are lost; the receipt then says so."""
    show.confirm(f"This gives up the unconfirmed wipe orders of request {request}.", yes)
    with closing(open_service(run)) as service:
        lost = service.registry.give_up(request)
    if not lost:
        raise ConfigError(f"Request {request!r} has no unconfirmed wipe orders.", f"See: fedforget receipts {run}")
    show.lines(f"Gave up {lost} orders of request {request}. The server updates the receipt.")


@app.command("app")
def app_command(folder: Annotated[Path, typer.Argument(help="The folder to write.")]) -> None:
    """Write the Flower app: a folder for `flwr run` that refers to the installed fedforget and contains no code."""
    from fedforget.flower.app import write_app
    from fedforget.flower.server_app import CONFIG

    write_app(folder, CONFIG)
    show.lines(
        f"Start the server with:\n  flwr run {folder} LINK --stream --run-config 'run=\"/path/of/RUN\" rounds=100'\n"
        f"Its settings: {', '.join(f'{name}={value!r}' for name, value in CONFIG.items())}."
    )


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    host: Annotated[list[str], typer.Option(help="A name or address of the server, as devices use it; repeatable.")],
) -> None:
    """Create a certificate for the SuperLink, and the authority that devices verify it with."""
    from fedforget.flower.credentials import make_certificates

    files = make_certificates(folder, host)
    show.lines(f"{files.certificate} and {files.key} are the SuperLink's; {files.authority} goes to every device.")


@app.command()
def status(run: Run, as_json: AsJson = False) -> None:
    """On the server: rounds, members, waiting erasure requests and unconfirmed wipes."""
    service = open_service(run)
    waiting = [*([service.waiting] if service.waiting else []), *service.queue.waiting()]
    figures = {
        "federation": service.config.id,
        "rounds": service.rounds,
        "members": len(service.members),
        "nodes": len(service.registry.by_node()),
        "waiting": list(dict.fromkeys(request.id for request in waiting)),
        "requests of devices": len(service.registry.items_requests()),
        "refused": service.queue.refused(),
        "forgotten": sum(len(receipt.users) for receipt in service.receipts()),
        "unconfirmed wipes": len(service.registry.wipe_orders()) + len(service.registry.open_removals()),
    }
    service.close()
    table = Table(title=f"{run}", show_header=False)
    for name, value in figures.items():
        shown = value if not isinstance(value, dict) else "\n".join(f"{key}: {text}" for key, text in value.items())
        table.add_row(name, ", ".join(shown) if isinstance(shown, list) else str(shown))
    show.result({"run": str(run), **figures}, as_json, table)


def _catalogue(path: Path, whole: bool = True) -> list[int | str]:
    """The item ids in a file; numbers if ``whole`` and all of them are whole numbers."""
    lines = read_ids(path, "item")
    if not lines:
        raise ConfigError(f"{path} names no items.", "Give one item id per line.")
    whole = whole and all(line.isascii() and line.isdecimal() and str(int(line)) == line for line in lines)
    ids, _ = factorised(checked_ids([int(line) for line in lines] if whole else lines, "item", str(path)))
    items: list[int | str] = ids.tolist()
    return items
