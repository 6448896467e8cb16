"""``fedforget token``: who may call the erasure service of a run. Works while the service runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.runs import Run
from fedforget.erasure_service.durations import parse_duration
from fedforget.erasure_service.state_file import open_state
from fedforget.erasure_service.tokens import SCHEMA, Role, TokenRecord, TokenStore
from fedforget.server.config_file import read_config

app = typer.Typer(no_args_is_help=True, help="Make and revoke access tokens of the erasure service.")


@contextmanager
def open_tokens(run: Path) -> Iterator[TokenStore]:
    """The tokens of a run's service; an error if there is no run."""
    read_config(run / "config.toml")
    with closing(open_state(run, SCHEMA)) as db:
        yield TokenStore(db)


@app.command()
def add(
    run: Run,
    role: Annotated[Role, typer.Option(help="What the token is for.")],
    name: Annotated[str, typer.Option(help="Who uses it, as the audit log shows it.")],
    expires: Annotated[str | None, typer.Option(help="Such as 90d, 24h or 15m from now; default never.")] = None,
    replaces: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Replace the token with this id: the new one may read what was asked for with it. Revoke the old one "
            "when it is no longer used.",
        ),
    ] = None,
) -> None:
    """Create a token and print it, once: only its hash is stored."""
    now = datetime.now(UTC)
    until = None if expires is None else now + parse_duration(expires)
    with open_tokens(run) as tokens:
        token = tokens.add(name, role, until, now, replaces=replaces)
    show.lines(token)
    valid = "until revoked" if until is None else f"until {_shown(until)}"
    show.notes.print(f"Valid {valid}. Keep it secret; it cannot be shown again.", markup=False, soft_wrap=True)


@app.command("list")
def list_command(run: Run, as_json: AsJson = False) -> None:
    """List all tokens, without their secrets."""
    now = datetime.now(UTC)
    with open_tokens(run) as tokens:
        records = tokens.all()
    columns = ("id", "holder", "name", "role", "created", "expires", "state")
    rows = [
        (one.id, one.holder, one.name, one.role, _shown(one.created), _shown(one.expires), _state(one, now))
        for one in records
    ]
    value = [{**asdict(record), "state": _state(record, now)} for record in records]
    for entry in value:
        entry.update({key: time.isoformat() for key, time in entry.items() if isinstance(time, datetime)})
    show.result(value, as_json, show.table(columns, rows, left=columns) if rows else f"{run} has no tokens.")


@app.command()
def revoke(run: Run, token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")]) -> None:
    """Revoke a token: it is refused from its next use on."""
    with open_tokens(run) as tokens:
        tokens.revoke(token_id)
    show.lines(f"Token {token_id} is revoked.")


def _shown(time: datetime | None) -> str:
    return "never" if time is None else f"{time:%Y-%m-%d %H:%M} UTC"


def _state(record: TokenRecord, now: datetime) -> str:
    if record.revoked is not None:
        return "revoked"
    return "valid" if record.valid(now) else "expired"
