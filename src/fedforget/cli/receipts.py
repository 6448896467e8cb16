"""``fedforget receipts``: what was forgotten in a run, and whether someone is among it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.requests import looked_at, on_network, typed
from fedforget.cli.runs import Run, opened
from fedforget.device.compute import Compute
from fedforget.errors import ConfigError
from fedforget.runtime.randomness import UserId
from fedforget.server.coordinator import Coordinator
from fedforget.server.service import Service


def receipts(
    run: Run,
    check: Annotated[
        str | None, typer.Option(help="Is this user among the forgotten? Exit code 0 if so, else 1.")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="The salt that forget showed.")] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """List what was forgotten when and how; with --check and --salt, find a user in it."""
    if (check is None) != (salt is None):
        raise ConfigError(
            f"--check is {check!r}, --salt is {salt!r}.", "Give both: without the salt nobody can be recognised."
        )
    fed = looked_at(run) if on_network(run) else opened(run, folder, Compute())[0]
    if check is not None and salt is not None:
        _check_user(fed, typed(check, fed.members), salt, as_json)
    elif as_json:
        waiting = fed.waiting and fed.waiting.id
        show.print_json({"run": str(run), "receipts": [r.to_dict() for r in fed.receipts()], "waiting": waiting})
    else:
        _list(fed, run)


def _check_user(fed: Coordinator, user: UserId, salt: str, as_json: bool) -> None:
    try:
        found = [receipt for receipt in fed.receipts() if receipt.names(user, salt)]
    except ValueError as error:
        raise ConfigError(f"The salt {salt!r} cannot be one: {error}.", "Give it as forget showed it.") from error
    if as_json:
        show.print_json({"user": user, "found": bool(found), "request": found[0].request if found else None})
    elif found:
        show.out.print(
            f"User {user} was forgotten: request {found[0].request}, finished {found[0].finished}.", soft_wrap=True
        )
    else:
        show.out.print(f"User {user} is in no receipt with this salt.")
    if not found:
        raise typer.Exit(1)


def _list(fed: Coordinator, run: Path) -> None:
    if (request := fed.waiting) is not None:
        how = "its server goes on with it" if isinstance(fed, Service) else f"fedforget forget {run} --resume"
        show.notes.print(f"Request {request.id} is not finished: {how}", soft_wrap=True)
    done = fed.receipts()
    if not done:
        show.out.print("Nobody was forgotten so far.")
        return
    table = Table(title=f"Forgotten in {run}", box=box.SIMPLE, padding=0)
    wiped = ["wiped"] if isinstance(fed, Service) else []
    for name in ("request", "finished", "users", *wiped, "method", "since round", "rounds", "coverage", "seconds"):
        left = name in ("request", "finished", "method")
        table.add_column(name, justify="left" if left else "right", no_wrap=" " not in name and name != "finished")
    for row in done:
        since = "–" if row.first_round is None else str(row.first_round)
        finished = row.finished[:16].replace("T", " ")
        rounds = str(row.rounds_replayed + row.rounds_added)
        table.add_row(
            row.request,
            finished,
            str(len(row.users)),
            *(str(row.wiped) for _ in wiped),
            row.method["name"],
            since,
            rounds,
            f"{row.coverage:.1%}",
            f"{row.seconds:.2f}",
        )
    show.out.print(table)
