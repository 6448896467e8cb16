"""``fedforget audit request``: what can be checked of one erasure."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.ids import KnownIds
from fedforget.cli.runs import Run, open_run
from fedforget.server.config_file import on_network
from fedforget.server.request_audit import audit_request
from fedforget.server.service import open_service
from fedforget.version import __version__

SHOWN = {True: "passed", False: "FAILED", None: "–"}


def request(
    run: Run,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The request, as listed by: fedforget receipts RUN.")],
    users: Annotated[
        list[str] | None, typer.Option(help="Ids of its users, to search all files for them; as in forget.")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="The salt that forget showed, to recognise its users.")] = None,
    audits: Annotated[list[Path] | None, typer.Option(help="Folders with audits of forgetting; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check one erasure: files, history, digests and devices; and attach an audit of its method. Exit code 1 if not."""
    folders = [Path("audits")] if audits is None else audits
    with closing(open_service(run) if on_network(run) else open_run(run)) as fed:
        ids = KnownIds(fed.members).parse_all(users or [])
        result = audit_request(fed, run, id_, __version__, users=ids, salt=salt, audits=folders)
    rows = [(check.name, SHOWN[check.passed], check.detail) for check in result.checks]
    columns = ["check", "", "found"]
    attached = "No audit of this method, model and settings was found: fedforget audit forgetting"
    if result.audit is not None:
        attached = f"Audit {result.audit['path']} ({result.audit['sha256'][:16]}): {result.audit['verdict']}"
    table = show.table(columns, rows, left=columns, title=f"Request {id_} of {run}")
    show.result(result.to_dict(), as_json, table, attached, f"Stored in {run / 'receipts' / id_}.audit.json")
    if not result.passed:
        raise typer.Exit(1)
