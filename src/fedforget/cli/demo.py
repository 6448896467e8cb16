"""``fedforget demo``: a synthetic federation with the erasure service, to try it."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedforget.cli import show
from fedforget.cli.serve import Approval, BatchEvery, BatchSize, CallbackHost, CallbackPrivate, require_service
from fedforget.errors import ConfigError, RunError
from fedforget.runtime.files import make_folder, write_file

if TYPE_CHECKING:
    from fedforget.simulation.federation import Federation

DATA: dict[str, Any] = {"users": 500, "items": 600, "mean_items": 30.0}
#: Round after which one user is forgotten, and rounds between evaluations. Curves begin after an erasure, so the
#: erasure is early.
ERASURE_ROUND, EVALUATE_EVERY = 10, 2
#: The file that tells that a folder was made by ``fedforget demo``, which may forget users of the run in it.
MARKER = "made-by-fedforget-demo"


def demo(
    out: Annotated[Path, typer.Option(help="The folder of the demo; an existing one is continued.")] = Path("demo"),
    port: Annotated[int | None, typer.Option(help="Port; default 8765; 0 takes a free one.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 60,
    batch_every: BatchEvery = None,
    batch_size: BatchSize = None,
    approval: Approval = None,
    callback_host: CallbackHost = None,
    callback_private: CallbackPrivate = None,
) -> None:
    """Start the erasure service on a synthetic federation, with one erasure done, and print how to try it.

    It listens on this machine only. Ctrl-C stops it; the same command continues.
    """
    require_service()
    if rounds < 1:
        raise ConfigError(f"rounds is {rounds}.", "Give at least 1.")
    from fedforget.erasure_service.serving import serve
    from fedforget.erasure_service.settings import ServiceSettings

    given = {
        "port": port,
        "batch_every": batch_every,
        "batch_size": batch_size,
        "approval": approval,
        "callback_hosts": callback_host or None,
        "callback_private": callback_private or None,
    }
    settings = ServiceSettings.build(given)
    run = _folder(out) / "run"
    user = _prepare(run, rounds)
    tokens = _tokens(run)
    serve(run, settings, lambda url: show.lines(_welcome(url, run, tokens, user)))


def _folder(out: Path) -> Path:
    """The folder of the demo; one that the demo did not make, or with other files, is refused."""
    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    hint = "Choose an empty or a new folder with --out."
    if found - {"run", MARKER}:
        raise RunError(f"{out} has other files in it.", hint)
    if "run" in found and MARKER not in found:
        raise RunError(f"{out / 'run'} was not made by fedforget demo, which forgets users of its run.", hint)
    write_file(make_folder(out) / MARKER, b"")
    return out


def _prepare(run: Path, rounds: int) -> object:
    """Train, and forget one user on the way. Returns a user who may be forgotten next."""
    from fedforget.data import load
    from fedforget.simulation.federation import Federation

    show.tell_if_compiling()
    if (run / "config.toml").exists():
        fed = Federation.open(run)
    else:
        train, test = load("synthetic", **DATA).split(test=0.2, seed=0)
        source = {"name": "synthetic", "options": DATA, "test": 0.2, "split": "random", "split_seed": 0}
        fed = Federation(train, test=test, path=run, source=source)
    with closing(fed):
        if fed.waiting is None:  # else the service continues the erasure that was interrupted
            if not fed.receipts():
                _fit(fed, min(ERASURE_ROUND, rounds))
                fed.forget([fed.cohort(1)[0]])
            _fit(fed, rounds)
        return fed.members[0]


def _fit(fed: Federation, rounds: int) -> None:
    """Train until so many rounds are done in all."""
    if fed.rounds < rounds:
        with show.rounds_bar(fed.rounds, rounds, quiet=False) as on_round:
            fed.fit(rounds, test=fed.test, evaluate_every=EVALUATE_EVERY, on_round=on_round)


def _tokens(run: Path) -> dict[str, str]:
    """New tokens by role; none for a role that has a valid one, which cannot be shown again."""
    from fedforget.cli.tokens import open_tokens
    from fedforget.erasure_service.tokens import Role

    now = datetime.now(UTC)
    with open_tokens(run) as tokens:
        there = {record.role for record in tokens.all() if record.valid(now)}
        return {role.value: tokens.add(f"demo {role.value}", role) for role in Role if role not in there}


def _welcome(url: str, run: Path, tokens: dict[str, str], user: object) -> str:
    """Where the page is, the tokens, and two commands to try."""
    request = str(uuid.uuid4())
    body = {
        "regulation": "gdpr",
        "subject_request_id": request,
        "subject_request_type": "erasure",
        "submitted_time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "subject_identities": [
            {"identity_type": "controller_customer_id", "identity_value": str(user), "identity_format": "raw"}
        ],
    }
    shown = [f"  {role:<10} {token}" for role, token in tokens.items()]
    missing = "Tokens were shown at the first start. A new one: fedforget token add"
    requests = f"{url}/opendsr/2.0/opendsr_requests"
    authorization = f"-H 'Authorization: Bearer {tokens.get('requester', 'TOKEN')}'"
    lines = [
        f"The page: {url}/",
        *(["Tokens, shown once; sign in with the operator's:", *shown] if shown else []),
        *([f"{missing} {run} --role operator --name NAME"] if len(shown) < 3 else []),
        "",
        f"Ask to forget user {user}, then look at the state of the request:",
        f"curl -s {requests} {authorization} -H 'Content-Type: application/json' -d '{json.dumps(body)}'",
        f"curl -s {requests}/{request} {authorization}",
        "",
        "Ctrl-C stops the service; fedforget demo continues it.",
    ]
    return "\n".join(lines)
