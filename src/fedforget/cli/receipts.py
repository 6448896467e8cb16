"""``fedforget receipts``: the erasures of a run, what was damaged in it, and whether a user was forgotten."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box

from fedforget.cli import show, signed_receipts
from fedforget.cli.command_group import CommandGroup
from fedforget.cli.data import AsJson
from fedforget.cli.ids import KnownIds
from fedforget.cli.runs import Run, open_run
from fedforget.errors import ConfigError
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.files import make_folder, write_file
from fedforget.runtime.randomness import UserId
from fedforget.server.config_file import on_network
from fedforget.server.coordinator import Coordinator
from fedforget.server.service import Service, open_service

app = typer.Typer(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="| COMMAND [ARGS]...")
app.command("verify")(signed_receipts.verify)
app.command("sign")(signed_receipts.sign)
app.command("rotate-key")(signed_receipts.rotate_key)


@app.callback()
def receipts(
    run: Run,
    check: Annotated[
        str | None, typer.Option(help="Check whether this user was forgotten: exit code 0 if so, else 1.")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="The salt that forget showed.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write receipts to hand out to this folder, without the operator's figures.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the erasures of a run, and damage to its files.

    With --check and --salt, find out whether a user was forgotten. The commands are for signed receipts.
    """
    if (check is None) != (salt is None):
        raise ConfigError(
            f"--check is {check!r}, --salt is {salt!r}.", "Give both: users are only recognised with the salt."
        )
    fed = open_service(run) if on_network(run) else open_run(run)
    if check is not None and salt is not None:
        _check_user(fed, KnownIds(fed.members).parse(check), salt, as_json)
    elif export is not None:
        folder, found = make_folder(export, private=False), fed.receipts()
        for receipt in found:
            text = json.dumps(receipt.to_public(), indent=2)
            write_file(folder / f"{receipt.request}.json", text.encode(), private=False)
        written = len(found)
        show.result({"run": str(run), "written": written}, as_json, f"Wrote {written} receipts to {folder}.")
    elif as_json:
        waiting = fed.waiting and fed.waiting.id
        listed, damage = [r.to_dict() for r in fed.receipts()], [asdict(each) for each in fed.fallbacks()]
        show.print_json({"run": str(run), "receipts": listed, "waiting": waiting, "fallbacks": damage})
    else:
        _list(fed, run)
        if fallbacks := fed.fallbacks():
            show.lines("\n".join(["Damaged or missing in this run, and what was used instead:", *map(str, fallbacks)]))


def _check_user(fed: Coordinator, user: UserId, salt: str, as_json: bool) -> None:
    try:
        found = [receipt for receipt in fed.receipts() if receipt.names(user, salt)]
    except ValueError as error:
        raise ConfigError(f"The salt {salt!r} is invalid: {error}.", "Give the salt that forget printed.") from error
    text = f"User {user} is in no receipt with this salt."
    if found:
        text = f"User {user} was forgotten: request {found[0].request}, finished {found[0].finished}."
        name = pseudonym(user, salt)
        if name in found[0].partial:
            text = f"{found[0].partial[name]} interactions of user {user} were forgotten: request {found[0].request}."
        if user in fed.members:
            text += " The user is a member of the federation now."
    value = {
        "user": user,
        "found": bool(found),
        "request": found[0].request if found else None,
        "member": user in fed.members,
    }
    show.result(value, as_json, text)
    if not found:
        raise typer.Exit(1)


def _list(fed: Coordinator, run: Path) -> None:
    if (request := fed.waiting) is not None:
        how = "its server continues it" if isinstance(fed, Service) else f"fedforget forget {run} --resume"
        show.notes.print(f"Request {request.id} is not finished: {how}", soft_wrap=True)
    rows = [
        {
            "request": receipt.request,
            "finished": receipt.finished[:16].replace("T", " "),
            "users": str(len(receipt.users)),
            **({"wiped": str(receipt.wiped)} if isinstance(fed, Service) else {}),
            "method": receipt.method["name"],
            "since round": "–" if receipt.first_round is None else str(receipt.first_round),
            "rounds": str(receipt.rounds_replayed + receipt.rounds_added),
            "coverage": f"{receipt.coverage:.1%}",
            "seconds": f"{receipt.seconds:.2f}",
        }
        for receipt in fed.receipts()
    ]
    if not rows:
        show.lines("Nobody was forgotten so far.")
        return
    left, cells = ("request", "finished", "method"), [list(row.values()) for row in rows]
    table = show.table(list(rows[0]), cells, left=left, title=f"Forgotten in {run}", box=box.SIMPLE, padding=0)
    for column in table.columns:
        column.no_wrap = column.header not in ("since round", "finished")
    show.out.print(table)
