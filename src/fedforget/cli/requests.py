"""Erasure requests for a run on a network: they are queued, and the server carries them out between rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from fedforget.cli import show
from fedforget.errors import FedForgetError, RunError
from fedforget.runtime.randomness import UserId
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest, checked_users
from fedforget.server.service import Service
from fedforget.server.unlearning import Method
from fedforget.server.unlearning.unlearn import Quorum


class WaitedError(FedForgetError):
    """The server has not carried out a request in time."""


def queue(
    service: Service,
    run: Path,
    users: Sequence[UserId],
    method: Method,
    require: float | None,
    wait: float,
    as_json: bool,
) -> None:
    """Queue a request for the server and, if ``wait`` is not 0, wait until it is carried out."""
    forgotten = checked_users(users, service.members)
    request = ErasureRequest.new(forgotten, method.settings(), Quorum(require or 0.0).share)
    ErasureQueue(run).add(request)
    if not as_json:
        show.lines(
            f"Request {request.id} to forget {len(forgotten)} users waits in {run}.\n"
            "The server carries it out before its next round. The salt is shown this once and is needed to\n"
            f"recognise a user in the receipt: {request.salt}\n"
            f"Then:\n  fedforget receipts {run}\n"
            f"  fedforget receipts {run} --check USER --salt {request.salt}"
        )
    done = _wait(run, request, wait) if wait else None
    if as_json:
        show.print_json({"run": str(run), "request": request.id, "salt": request.salt, "receipt": done})


def _wait(run: Path, request: ErasureRequest, seconds: float) -> object:
    """Wait until every forgotten user's device has confirmed, or the time is over; return the receipt."""
    deadline = time.monotonic() + seconds
    path = run / "receipts" / f"{request.id}.json"
    while True:
        over = time.monotonic() >= deadline
        if path.exists():
            receipt = Receipt.from_json(path.read_text(encoding="utf-8"))
            if over or receipt.wiped == receipt.devices:
                show.notes.print(str(receipt), soft_wrap=True, markup=False)
                return receipt.to_dict()
        if over:
            break
        if reason := ErasureQueue(run).why_refused(request.id):
            raise RunError(f"The server did not carry it out: {reason}", "Correct that and ask again.")
        time.sleep(0.5)
    raise WaitedError(
        f"Request {request.id} was not carried out within {seconds:.0f} s.",
        f"It still waits: is the server running? See: fedforget flower status {run}",
    )
