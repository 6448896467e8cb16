"""RequestAudit: what can be checked of one erasure in production, where no other worlds can be trained.

``receipts/ID.audit.json`` has the result, beside the receipt. It names no user.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.errors import ConfigError, RunError
from fedforget.runtime.files import make_folder, write_file
from fedforget.runtime.ids import ItemId, UserId
from fedforget.server.attached_audit import AttachedAudit, attached_audit
from fedforget.server.coordinator import Coordinator
from fedforget.server.history import History
from fedforget.server.receipt import Receipt
from fedforget.server.request_persons import Names, RequestPersons
from fedforget.server.run_files import RunFiles
from fedforget.server.traces import find_traces
from fedforget.server.wanted import Wanted

PASSED, FAILED, INCOMPLETE = "passed", "failed", "incomplete"
#: Files that are listed.
SHOWN = 5
#: The rounds from which a user's interactions with some items count; only of those that the run has.
Held = Callable[[UserId, Sequence[ItemId]], Mapping[ItemId, int]]


@dataclass(frozen=True)
class Check:
    """One check: passed, failed, or (None) not possible, and why."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class RequestAudit:
    """The checks of one request, for ``checked`` of its ``persons``.

    ``audit`` is the audit of forgetting that says most about it; it does not change the result. ``stored`` is false if
    an earlier result stays, which checked more.
    """

    request: str
    checks: Sequence[Check]
    checked: int
    persons: int
    audit: AttachedAudit | None
    unreadable_audits: Sequence[str]
    version: str
    stored: bool = True
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def result(self) -> str:
        """``failed`` if any check failed, ``incomplete`` if one was not possible, else ``passed``."""
        outcomes = {check.passed for check in self.checks}
        return FAILED if False in outcomes else INCOMPLETE if None in outcomes else PASSED

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "result": self.result}


@dataclass(frozen=True)
class Signed:
    """The persons of the signed receipt of a request, and what is wrong with it, if anything."""

    names: Names
    problem: str = ""


def audit_request(
    fed: Coordinator,
    folder: Path,
    request: str,
    version: str,
    *,
    users: Sequence[UserId] = (),
    salts: Sequence[str] = (),
    items: Mapping[UserId, Sequence[ItemId]] | None = None,
    held: Held | None = None,
    signed: Signed | None = None,
    audits: Sequence[Path] = (),
) -> RequestAudit:
    """Check an erasure of the run in a folder, and store the result beside its receipt.

    The users of the request are recognised by their ids (``users``) and the ``salts`` of the request. ``items`` are
    those that were forgotten of users who stay, which are compared with what is ``held``. ``audits`` are folders with
    audits of forgetting, or with folders of such.
    """
    receipt = _receipt(fed, request)
    given = [*users, *(user for user in items or {} if user not in users)]
    names = signed.names if signed is not None and not signed.problem else {}
    persons = RequestPersons.of(fed, receipt, names, given, salts)
    files = RunFiles(folder, f"trajectory-{fed.config.trajectory}", fed.history)
    checks = {
        "one trajectory": lambda: _trajectory(fed, folder),
        "persons": lambda: _persons(persons),
        "history": lambda: _history(fed, persons),
        "interactions": lambda: _interactions(persons, items or {}, held),
        "files": lambda: _files(fed, folder, persons),
        "unexpected files": lambda: _unexpected(files, persons),
        "digests": lambda: _digests(fed, receipt, files),
        "devices": lambda: _devices(receipt),
        "signed receipt": lambda: _signed(signed),
    }
    done = [_done(name, check) for name, check in checks.items()]
    audit, unreadable = attached_audit(fed.config.to_dict(), dict(receipt.method), audits, rounds=fed.rounds)
    made = [check for check in done if check is not None]
    result = RequestAudit(request, made, persons.checked, persons.total, audit, unreadable, version)
    return replace(result, stored=_store(make_folder(folder / "receipts") / f"{request}.audit.json", result))


#: What a check found, and in words; None if there is nothing to check.
Found = tuple[bool | None, str] | None


def _done(name: str, check: Callable[[], Found]) -> Check | None:
    """A check; not possible if what it reads is damaged."""
    try:
        found = check()
    except (RunError, OSError, sqlite3.Error, ValueError) as error:
        found = None, error.problem if isinstance(error, RunError) else f"not possible: {error}"
    return None if found is None else Check(name, *found)


def _receipt(fed: Coordinator, request: str) -> Receipt:
    receipts = {receipt.request: receipt for receipt in fed.receipts()}
    if request not in receipts:
        known = ", ".join(receipts) or "none"
        raise ConfigError(f"There is no receipt of request {request!r}.", f"Requests of this run: {known}.")
    return receipts[request]


def _trajectory(fed: Coordinator, folder: Path) -> Found:
    """Nothing is left of an earlier trajectory, or of an unfinished request."""
    own = f"trajectory-{fed.config.trajectory}"
    others = [path.name for path in folder.glob("trajectory-*") if path.name != own]
    others += ["request.json"] if fed.waiting is not None else []
    return not others, f"only {own}" if not others else f"also {', '.join(sorted(others))}"


def _persons(persons: RequestPersons) -> Found:
    """All persons of the request are named, and proved by their pseudonyms."""
    counted = f"{persons.checked} of {persons.total} persons of the request were checked"
    if not persons.salts:
        return None, f"{counted}: they are recognised with the salt, or the id of the request"
    if persons.again:
        return None, f"{counted}; {len(persons.again)} are members again, and are in files rightly"
    if persons.checked < persons.total:
        return None, f"{counted}: give the ids of the others, and the salts of their requests"
    return True, counted


def _history(fed: Coordinator, persons: RequestPersons) -> Found:
    """Nobody of the request is a member, or took part in any round of the trajectory in service."""
    if not persons.whole:
        return None if persons.salts else (None, "give the salt, or the id of the request")
    if not (persons.users or persons.again or persons.salts):
        return None, "give the salt, or the id of the request, and the ids of its users"
    history, rounds = fed.history, 0
    try:
        for round_ in range(1, history.last_round + 1):
            record = history.record(round_)
            rounds += any(persons.forgotten(user, round_) for user in (*record.participants, *record.failures))
    except RunError as error:
        return False, error.problem
    there = sum(map(persons.forgotten, {*fed.members, *history.membership.users()}))
    detail = f"{there} members and {rounds} of {history.last_round} rounds have users of the request"
    if there or rounds:
        return False, detail
    if persons.salts and not persons.checked:
        return None, f"{detail}, if the salt is right: give the ids of its users"
    return True, detail


def _interactions(persons: RequestPersons, items: Mapping[UserId, Sequence[ItemId]], held: Held | None) -> Found:
    """The data has none of the forgotten interactions of users who stay."""
    if all(count is None for count in persons.names.values()):
        return None
    if not persons.partial and persons.checked == persons.total:
        return None  # all of them are no members any more
    if not persons.partial:
        return None, "give the user who stays, the forgotten items and the salt"
    if held is None:
        return None, "the interactions of users on a network are on their devices only"
    given = {user: list(dict.fromkeys(items.get(user, ()))) for user in persons.partial}
    rounds = [round_ for user, some in given.items() for round_ in held(user, some).values()]
    named, total = sum(map(len, given.values())), sum(persons.partial.values())
    if not all(rounds):
        return False, f"the data still has {len(rounds)} of the {named} forgotten interactions that were given"
    if rounds:
        return None, f"the data has {len(rounds)} of the interactions, from additions: they may have been added again"
    if named < total:
        return None, f"{named} of {total} forgotten interactions were given to be checked: name the user and the items"
    return True, f"the data has none of the {named} forgotten interactions"


def _files(fed: Coordinator, folder: Path, persons: RequestPersons) -> Found:
    """No file has an id, a key or a salt of the users."""
    known = [*fed.members, *fed.history.catalogue.ids()]
    salts = persons.salts if persons.checked else ()
    traces = find_traces(folder, Wanted(persons.users, salts, known))
    number = f"{traces.files} files searched"
    if traces.found:
        return False, f"{number}: {_shown(traces.found)}"
    if traces.unreadable:
        return None, f"{len(traces.unreadable)} of {traces.files} files not searched: {_shown(traces.unreadable)}"
    if persons.whole and not persons.users:
        return None, "give the ids of the users to search all files for them and their keys"
    if not persons.users and not salts:
        return None, "give the salt, or the id of the request, to search all files for it"
    return True, f"{number}: no id, key or salt" if persons.users else f"{number}: no salt; the users stay"


def _unexpected(files: RunFiles, persons: RequestPersons) -> Found:
    """Every file is one of a run: others may hold what the search cannot see."""
    found = list(map(Wanted(persons.users, persons.salts).hidden, files.unexpected()))
    return (None, f"{len(found)} files are no part of a run: {_shown(found)}") if found else (True, "none")


def _digests(fed: Coordinator, receipt: Receipt, files: RunFiles) -> Found:
    """Every snapshot is in the history and matches its checksum, and none is the model before the erasure."""
    if others := files.unreferenced():
        return False, f"{len(others)} models or data files are not in the history: {_shown(others)}"
    history = fed.history
    try:
        digests = _snapshot_digests(history)
    except RunError as error:
        return False, error.problem
    if receipt.digest_before in digests and receipt.digest_before != receipt.digest_after:
        return False, "the model from before the erasure is still a snapshot"
    intact = f"{len(digests)} snapshots are intact"
    if receipt.digest_after in digests:
        return True, f"{intact}; one is the model of the receipt"
    return True, f"{intact}; the model of the receipt was replaced since"


def _snapshot_digests(history: History) -> list[str]:
    """The digests of the models in all snapshots, but those that a server removes meanwhile."""
    digests = []
    for round_ in history.usable_rounds():
        try:
            digests.append(history.snapshot(round_).digest)
        except RunError:
            if round_ in history.usable_rounds():
                raise
    return digests


def _devices(receipt: Receipt) -> Found:
    """All devices that held something of the users have confirmed that it is gone; in a simulation they are files."""
    if receipt.wiped is None:
        return None
    lost = f", {receipt.given_up} were given up" if receipt.given_up else ""
    return receipt.wiped == receipt.devices, f"{receipt.wiped} of {receipt.devices} devices have confirmed{lost}"


def _signed(signed: Signed | None) -> Found:
    """The signed receipt is valid, if there is one."""
    if signed is None:
        return None
    return not signed.problem, signed.problem or "valid by the certificates in the run folder"


def _shown(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more


def _store(path: Path, result: RequestAudit) -> bool:
    """Write a result, unless the stored one has checked more and does not lack that something failed."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        before = stored["result"], _rank(stored)
    except (OSError, ValueError, KeyError, TypeError):
        before = None, (0, 0, 0)
    values = result.to_dict()
    newly_failed = result.result == FAILED and before[0] != FAILED
    if not newly_failed and before[1] > _rank(values):
        return False
    write_file(path, json.dumps(values, indent=2).encode())
    return True


def _rank(values: Mapping[str, Any]) -> tuple[int, int, int]:
    """How much a result says: its checks first, then its persons, then whether an audit is attached."""
    made = sum(check["passed"] is not None for check in values["checks"])
    return made, int(values["checked"]), int(values["audit"] is not None)
