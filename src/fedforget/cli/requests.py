"""Forgetting in a run on a network: requests are queued, and its server carries them out between rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from fedforget.cli import show
from fedforget.errors import FedForgetError, RunError
from fedforget.queue import Queue
from fedforget.randomness import UserId
from fedforget.request import Request, checked_users
from fedforget.server.fleet import Fleet
from fedforget.server.registry import Registry
from fedforget.server.unlearning import Method
from fedforget.server.unlearning.receipt import Receipt
from fedforget.server.unlearning.unlearn import Quorum
from fedforget.service import Service
from fedforget.settings import Settings, read_config


class WaitedError(FedForgetError):
    """The server has not carried out a request while someone waited for it."""


def on_network(run: Path) -> bool:
    """Whether the devices of a run are on a network."""
    return bool(read_config(run / "config.toml").get("engine", "simulation") != "simulation")


def looked_at(run: Path) -> Service:
    """The server's half of a run on a network, to look at: it reaches no device."""

    def nobody(settings: Settings, registry: Registry) -> Fleet:
        return None  # type: ignore[return-value]

    return Service(run, nobody)


def typed(given: str, known: Sequence[UserId]) -> UserId:
    """An id typed in a shell, as those that are known already have it: a number where they are numbers."""
    if given in known or not (given.isascii() and given.removeprefix("-").isdecimal()):
        return given
    if not known:  # the first of a federation: 007 is a name
        return int(given) if str(int(given)) == given else given
    return int(given) if int(given) in known or all(isinstance(user, int) for user in known) else given


def split_ids(given: str) -> list[str]:
    """Ids that were typed with commas between."""
    return [part.strip() for part in given.split(",") if part.strip()]


def queue(
    service: Service,
    run: Path,
    users: Sequence[UserId],
    method: Method,
    require: float | None,
    wait: float,
    as_json: bool,
) -> None:
    """Let a request wait for the server, and, if so wanted, wait until it is carried out."""
    leavers = checked_users(users, service.members)
    service.estimate(leavers, method)  # refuses at once what the server would refuse later
    request = Request.new(leavers, method.settings(), Quorum(require or 0.0).share)
    Queue(run).add(request)
    if not as_json:
        show.out.print(
            f"Request {request.id} to forget {len(leavers)} users waits in {run}.\n"
            "The server carries it out before its next round. The salt is shown this once and is needed to\n"
            f"recognise a user in the receipt: {request.salt}\n"
            f"Then:\n  fedforget receipts {run}\n"
            f"  fedforget receipts {run} --check USER --salt {request.salt}",
            soft_wrap=True,
        )
    done = _wait(run, request, wait) if wait else None
    if as_json:
        show.print_json({"run": str(run), "request": request.id, "salt": request.salt, "receipt": done})


def _wait(run: Path, request: Request, seconds: float) -> object:
    """The receipt of a request, once the server has written it and every leaver's device has confirmed.

    Where a device does not confirm, the receipt as it is when the time is over.
    """
    deadline = time.monotonic() + seconds
    path = run / "receipts" / f"{request.id}.json"
    while True:
        over = time.monotonic() >= deadline
        if path.exists():
            receipt = Receipt.from_json(path.read_text(encoding="utf-8"))
            if over or receipt.wiped == len(receipt.users):
                show.notes.print(str(receipt), soft_wrap=True, markup=False)
                return receipt.to_dict()
        if over:
            break
        if reason := Queue(run).refused().get(request.id):
            raise RunError(f"The server did not carry it out: {reason}", "Mend that, and ask again.")
        time.sleep(0.5)
    raise WaitedError(
        f"Request {request.id} was not carried out within {seconds:.0f} s.",
        f"It still waits: is the server running? See: fedforget flower status {run}",
    )
