"""RequestAudit: what can be checked of one erasure in production, where no other worlds can be trained.

``receipts/ID.audit.json`` has the result, beside the receipt. It names no user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.errors import ConfigError, RunError
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.files import make_folder, write_file
from fedforget.runtime.randomness import UserId
from fedforget.server.coordinator import Coordinator
from fedforget.server.receipt import Receipt
from fedforget.server.traces import find_traces
from fedforget.server.wanted import Wanted

#: Parts of a configuration that an audit must share with a run.
SAME = ("model", "sampler", "training", "server")
#: Traces that are listed.
SHOWN = 5


@dataclass(frozen=True)
class Check:
    """One check: passed, failed, or (None) not possible, and why."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class RequestAudit:
    """The checks of one request. ``audit`` is the newest audit of the same method, model and settings, by digest."""

    request: str
    checks: Sequence[Check]
    audit: dict[str, Any] | None
    version: str
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def audit_request(
    fed: Coordinator,
    folder: Path,
    request: str,
    version: str,
    *,
    users: Sequence[UserId] = (),
    salt: str | None = None,
    audits: Sequence[Path] = (),
) -> RequestAudit:
    """Check an erasure of the run in a folder, and store the result beside its receipt.

    With the ``salt`` of the request, its users are recognised in the history. With their ids (``users``), every file is
    searched for them. ``audits`` are folders with audits of forgetting, or with folders of such.
    """
    receipt = _receipt(fed, request)
    _check_named(fed, receipt, users, salt)
    checks = [
        _trajectory(fed, folder),
        _history(fed, receipt, users, salt),
        _files(fed, folder, users, salt),
        _digests(fed, receipt),
        _devices(receipt),
    ]
    result = RequestAudit(request, checks, newest_audit(fed, receipt, audits), version)
    target = make_folder(folder / "receipts") / f"{request}.audit.json"
    write_file(target, json.dumps(result.to_dict(), indent=2).encode())
    return result


def newest_audit(fed: Coordinator, receipt: Receipt, folders: Iterable[Path]) -> dict[str, Any] | None:
    """The newest audit of the receipt's method on the run's model and settings: its digest and what it says."""
    config, found = fed.config.to_dict(), []
    for folder in folders:
        for path in [folder / "details.json", *sorted(folder.glob("*/details.json"))]:
            details = _read(path)
            settings = details.get("settings", {})
            if any(settings.get("config", {}).get(name) != config[name] for name in SAME):
                continue
            names = [name for name, method in settings["methods"].items() if method == dict(receipt.method)]
            found += [(details["finished"], path, details, name) for name in names]
    if not found:
        return None
    finished, path, details, name = max(found, key=lambda one: one[0])
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    verdict = details["verdicts"][name]
    return {"path": str(path), "sha256": sha256, "finished": finished, "method": name, "verdict": verdict}


def _read(path: Path) -> dict[str, Any]:
    """An audit's details; empty if there are none that can be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _receipt(fed: Coordinator, request: str) -> Receipt:
    receipts = {receipt.request: receipt for receipt in fed.receipts()}
    if request not in receipts:
        known = ", ".join(receipts) or "none"
        raise ConfigError(f"There is no receipt of request {request!r}.", f"Requests of this run: {known}.")
    return receipts[request]


def _check_named(fed: Coordinator, receipt: Receipt, users: Sequence[UserId], salt: str | None) -> None:
    """Refuse users who are not those of the request: a search for others would find nothing and prove nothing."""
    if salt is not None:
        try:
            bytes.fromhex(salt)
        except ValueError as error:
            raise ConfigError(
                f"The salt {salt!r} is invalid: {error}.", "Give the salt that forget printed."
            ) from error
    recognised = fed.history.membership.suppressed
    known = recognised(users) if salt is None else [user for user in users if receipt.names(user, salt)]
    if len(known) < len(users):
        other = next(user for user in users if user not in known)
        raise ConfigError(
            f"User {other!r} was not forgotten by request {receipt.request}.", "Check the id and the salt."
        )


def _trajectory(fed: Coordinator, folder: Path) -> Check:
    """Nothing is left of an earlier trajectory, or of an unfinished request."""
    own = f"trajectory-{fed.config.trajectory}"
    others = [path.name for path in folder.glob("trajectory-*") if path.name != own]
    others += ["request.json"] if fed.waiting is not None else []
    return Check("one trajectory", not others, f"only {own}" if not others else f"also {', '.join(sorted(others))}")


def _history(fed: Coordinator, receipt: Receipt, users: Sequence[UserId], salt: str | None) -> Check:
    """Nobody of the request is a member, or took part in any round of the trajectory in service."""
    if salt is None and not users:
        return Check("history", None, "give --salt or --users to recognise the users of the request")
    names = set(receipt.users)

    def forgotten(user: UserId) -> bool:
        return user in users if salt is None else pseudonym(user, salt) in names

    history, rounds = fed.history, 0
    try:
        for round_ in range(1, history.last_round + 1):
            record = history.record(round_)
            rounds += any(map(forgotten, [*record.participants, *record.failures]))
    except RunError as error:
        return Check("history", False, error.problem)
    there = sum(map(forgotten, fed.members))
    detail = f"{there} members and {rounds} of {history.last_round} rounds have users of the request"
    return Check("history", not (there or rounds), detail)


def _files(fed: Coordinator, folder: Path, users: Sequence[UserId], salt: str | None) -> Check:
    """No file has an id, a key or the salt of the users."""
    if not users:
        return Check("files", None, "give --users to search all files for their ids and keys")
    known = [*fed.members, *fed.history.catalogue.ids()]
    traces = find_traces(folder, Wanted(users, [] if salt is None else [salt], known))
    if traces.found:
        return Check("files", False, f"{traces.files} files searched: {_shown(traces.found)}")
    if traces.unreadable:
        return Check("files", None, f"{len(traces.unreadable)} files not searched: {_shown(traces.unreadable)}")
    return Check("files", True, f"{traces.files} files searched: no id, key or salt")


def _shown(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more


def _digests(fed: Coordinator, receipt: Receipt) -> Check:
    """Every snapshot matches its checksum, and the model of the receipt is one of them, unless it was replaced."""
    history = fed.history
    try:
        digests = [history.snapshot(round_).digest for round_ in history.usable_rounds()]
    except RunError as error:
        return Check("digests", False, error.problem)
    if receipt.digest_after in digests:
        return Check("digests", True, f"{len(digests)} snapshots are intact; one is the model of the receipt")
    if receipt.digest_before in digests and receipt.digest_before != receipt.digest_after:
        return Check("digests", False, "the model from before the erasure is still a snapshot")
    later = fed.receipts()[-1].request != receipt.request
    detail = "a later erasure replaced" if later else "there is no snapshot any more of"
    return Check("digests", None, f"{len(digests)} snapshots are intact; {detail} the model of the receipt")


def _devices(receipt: Receipt) -> Check:
    """All devices that held something of the users have confirmed that it is gone."""
    if receipt.wiped is None:
        return Check("devices", None, "simulated devices are files of the run")
    lost = f", {receipt.given_up} were given up" if receipt.given_up else ""
    detail = f"{receipt.wiped} of {receipt.devices} devices have confirmed{lost}"
    return Check("devices", receipt.wiped == receipt.devices, detail)
