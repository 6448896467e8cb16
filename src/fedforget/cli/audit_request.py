"""``fedforget audit request``: what can be checked of one erasure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.ids import KnownIds
from fedforget.cli.runs import Run, open_run
from fedforget.errors import ConfigError, FedForgetError
from fedforget.protocol.pseudonym import request_salt
from fedforget.runtime.ids import ItemId, UserId
from fedforget.server.attached_audit import AttachedAudit, audit_command
from fedforget.server.config_file import on_network
from fedforget.server.request_audit import FAILED, INCOMPLETE, Held, RequestAudit, Signed, audit_request
from fedforget.server.service import open_service
from fedforget.simulation.federation import Federation
from fedforget.version import __version__

SHOWN = {True: "passed", False: "FAILED", None: "not checked"}
EXIT_CODES = {FAILED: 1, INCOMPLETE: 2}


def request(
    run: Run,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The request, as listed by: fedforget receipts RUN.")],
    users: Annotated[
        list[str] | None, typer.Option(help="Ids of its users, to search all files for them; as in forget.")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="The salt that forget showed, to recognise its users.")] = None,
    request_id: Annotated[
        list[str] | None,
        typer.Option(help="The UUID of a person's request over HTTP, in place of the salt; repeatable."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="The user who stays, if --items of theirs were forgotten.")] = None,
    items: Annotated[list[str] | None, typer.Option(help="With --user: the forgotten items; as in forget.")] = None,
    audits: Annotated[list[Path] | None, typer.Option(help="Folders with audits of forgetting; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check one erasure: files, history, digests and devices; and attach an audit of its method.

    Exit code 0 if it passed, 1 if a check failed, 2 if one was not possible.
    """
    if items and user is None:
        raise ConfigError("--items was given without --user.", "Name the user who stays.")
    folders = [Path("audits")] if audits is None else audits
    salts = [*([] if salt is None else [salt]), *map(request_salt, request_id or [])]
    with closing(open_service(run) if on_network(run) else open_run(run)) as fed:
        known = KnownIds(fed.members)
        partial: dict[UserId, list[ItemId]] = {}
        if user is not None:
            catalogue = KnownIds(fed.train.item_ids.tolist() if isinstance(fed, Federation) else [], "item")
            partial = {known.parse(user): catalogue.parse_all(items or [])}
        result = audit_request(
            fed,
            run,
            id_,
            __version__,
            users=known.parse_all(users or []),
            salts=salts,
            items=partial,
            held=_held(fed) if isinstance(fed, Federation) else None,
            signed=_signed(run, id_),
            audits=folders,
        )
        method = next(receipt.method for receipt in fed.receipts() if receipt.request == id_)
        command = audit_command(fed.model.name, method)
    _show(run, id_, result, command, as_json)
    if result.result in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[result.result])


def _held(fed: Federation) -> Held:
    """The interactions that a simulated run has, with the rounds from which they count."""

    def held(user: UserId, items: Sequence[ItemId]) -> Mapping[ItemId, int]:
        found: dict[ItemId, int] = {}
        for data in (fed.train, fed.test):
            if data is None or user not in data.user_index_of:
                continue
            place = data.user_index(user)
            rows = slice(data.indptr[place], data.indptr[place + 1])
            own = data.item_ids[data.indices[rows]].tolist()
            since = [0] * len(own) if data.since is None else data.since[rows].tolist()
            found |= {item: round_ for item, round_ in zip(own, since, strict=True) if item in set(items)}
        return found

    return held


def _signed(run: Path, request: str) -> Signed | None:
    """The newest signed receipt of a request, if there is one and it can be verified here."""
    if not (run / "receipts" / "signed").is_dir() or any(
        find_spec(name) is None for name in ("securesystemslib", "cryptography")
    ):
        return None
    from fedforget.attestation import verify_run
    from fedforget.attestation.verify import Problem

    try:
        verified = verify_run(run)
    except FedForgetError as error:
        return Signed({}, error.problem)
    entries = [entry for entry in verified.entries if entry.request == request]
    allowed = (None, Problem.UNSIGNED, Problem.WIPES)
    wrong = [
        finding
        for finding in verified.findings
        if finding.problem not in allowed and (finding.request == request or finding.name.endswith(f"-{request}.json"))
    ]
    if not entries and not wrong:
        return None
    names = {person.pseudonym: person.items_requested for person in entries[-1].persons} if entries else {}
    return Signed(names, f"{wrong[0].name}: {wrong[0].reason}" if wrong else "")


def _show(run: Path, id_: str, result: RequestAudit, command: str, as_json: bool) -> None:
    rows = [(check.name, SHOWN[check.passed], check.detail) for check in result.checks]
    columns = ["check", "", "found"]
    table = show.table(columns, rows, left=columns, title=f"Request {id_} of {run}")
    path = f"{run / 'receipts' / id_}.audit.json"
    stored = f"Stored in {path}" if result.stored else f"Not stored: {path} has a result with more checks"
    notes = [
        _attached(result.audit, command),
        *(f"Not an audit of forgetting: {each}" for each in result.unreadable_audits),
    ]
    show.result(result.to_dict(), as_json, f"Result: {result.result}", table, *notes, stored)


def _attached(audit: AttachedAudit | None, command: str) -> str:
    if audit is None:
        return f"No audit of this method, model and settings was found. Make one, with the run's settings: {command}"
    differs = f" ({'; '.join(audit.differs)})" if audit.differs else ""
    text = f"Audit {audit.path} ({audit.sha256[:16]}){differs}: {audit.verdict}"
    if audit.contradicts:
        text += "\nThis contradicts the erasure: such models still show who was forgotten. The result stays."
    return text
