"""Verification: whether the signed receipts of a run are whole, and the stored receipts say the same."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from fedforget.attestation.canonical_json import canonical
from fedforget.attestation.certificate import Certificate
from fedforget.attestation.chain import FOLDER, SignedReceipt
from fedforget.attestation.envelope import Envelope
from fedforget.attestation.keys import stored_certificates
from fedforget.attestation.objection import objection
from fedforget.attestation.person import Person
from fedforget.attestation.statement import (
    PREDICATE_TYPE,
    issued_at,
    pseudonyms_in,
    read_statement,
    wipe_counts,
)
from fedforget.attestation.stored import StoredReceipts
from fedforget.errors import ReceiptError
from fedforget.runtime.ids import UserId

#: What failed is read once more after this many seconds, since a server may be writing.
SETTLE_SECONDS = 0.3
ATTEMPTS = 5


class Problem(StrEnum):
    """What is wrong with an entry or a receipt."""

    DAMAGED = "damaged"
    SIGNATURE = "signature"
    CHAIN = "chain"
    RECEIPT = "receipt"
    MISSING = "missing"
    UNSIGNED = "unsigned"
    WIPES = "wipes"
    HEAD = "head"


@dataclass(frozen=True)
class Finding:
    """What was found about one entry or one receipt; ``problem`` is None if all is well."""

    name: str
    request: str | None = None
    number: int | None = None
    problem: Problem | None = None
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.problem is None


@dataclass(frozen=True)
class Verification:
    """The findings about a run or a file. ``head`` is the digest of the newest entry.

    Without ``given`` certificates those in the run folder were used, which whoever can write there can replace.
    ``others`` are the pseudonyms in a statement that is not a receipt, by its file.
    """

    findings: Sequence[Finding]
    entries: Sequence[SignedReceipt]
    given: bool
    others: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.passed for finding in self.findings)

    @property
    def head(self) -> str | None:
        return self.entries[-1].digest if self.entries else None

    def naming(self, user: UserId, request: str) -> list[str]:
        """The requests, or the other file, whose statements name a user who asked by a request of their own."""
        name = Person.of(user, request).pseudonym
        named = [entry.request for entry in self.entries if name in pseudonyms_in(entry.statement)]
        return [*dict.fromkeys(named), *(file for file, names in self.others.items() if name in names)]

    def to_dict(self) -> dict[str, Any]:
        findings = [{**asdict(each), "passed": each.passed} for each in self.findings]
        return {"passed": self.passed, "head": self.head, "certificates_given": self.given, "findings": findings}


def verify_run(run: Path, certificates: Sequence[str] | None = None, head: str | None = None) -> Verification:
    """Check every signed and stored receipt of a run.

    ``certificates`` are those to trust, in PEM; by default all that the run folder has. ``head`` is the digest of an
    entry that was noted earlier: only with it is the removal of the newest entries found.
    """
    given = None if certificates is None else _parsed(certificates)
    read = _read(run, given)
    for _ in range(ATTEMPTS):
        result = _verify(run, *read, given is not None, head)
        if result.passed:
            break
        time.sleep(SETTLE_SECONDS)
        before, read = read, _read(run, given)
        if read == before:
            break
    return result


def verify_file(path: Path, certificates: Sequence[str]) -> Verification:
    """Check one signed receipt by itself, or the signature of any other in-toto statement of the same signer.

    See ``Verification.naming`` for who is in it.
    """
    envelope, trusted = Envelope.load(path), _parsed(certificates)
    statement = read_statement(envelope.payload, str(path))
    if statement["predicateType"] != PREDICATE_TYPE:
        reason = _signature(envelope, None, trusted)
        found = Finding(path.name, problem=Problem.SIGNATURE if reason else None, reason=reason)
        return Verification([found], [], True, {path.name: pseudonyms_in(statement)})
    entry = SignedReceipt.of(path, envelope, named=False)
    reason = _signature(envelope, entry, trusted)
    problem = Problem.SIGNATURE if reason else None
    return Verification([Finding(path.name, entry.request, entry.number, problem, reason)], [entry], True)


def _read(run: Path, given: Sequence[Certificate] | None) -> tuple[StoredReceipts, Sequence[Certificate]]:
    """What is stored, and then the certificates: those of all keys that have signed it."""
    return StoredReceipts.read(run), stored_certificates(run) if given is None else given


def _verify(
    run: Path, stored: StoredReceipts, trusted: Sequence[Certificate], given: bool, head: str | None
) -> Verification:
    findings: list[Finding] = []
    entries: list[SignedReceipt] = []
    order = {certificate.key_id: place for place, certificate in enumerate(trusted)}
    newest_key = 0
    for name in sorted(stored.signed, key=lambda name: (len(name.partition("-")[0]), name)):
        try:
            envelope = Envelope.parse(stored.signed[name], name)
            entry = SignedReceipt.of(run / FOLDER / name, envelope)
        except ReceiptError as error:
            findings.append(Finding(name, problem=Problem.DAMAGED, reason=error.problem))
            continue
        found = list(_entry_problems(entry, envelope, stored, trusted, entries[-1] if entries else None))
        place = order.get(envelope.key_id, 0)
        if not given and place < newest_key:
            found.append((Problem.SIGNATURE, "it is signed with a key that was replaced before"))
        newest_key = max(newest_key, place)
        entries.append(entry)
        findings += [Finding(name, entry.request, entry.number, problem, reason) for problem, reason in found]
        if not found:
            findings.append(Finding(name, entry.request, entry.number))
    findings += _receipt_findings(stored, entries)
    if head is not None and head not in {entry.digest for entry in entries}:
        reason = f"no entry has the digest {head}: entries were removed or changed after it was noted"
        findings.append(Finding("head", problem=Problem.HEAD, reason=reason))
    return Verification(findings, entries, given)


def _entry_problems(
    entry: SignedReceipt,
    envelope: Envelope,
    stored: StoredReceipts,
    trusted: Sequence[Certificate],
    before: SignedReceipt | None,
) -> Iterator[tuple[Problem, str]]:
    """What is wrong with an entry by itself, in the chain, and beside the receipt in the history."""
    if stored.signed[entry.path.name] != envelope.to_bytes():
        yield Problem.DAMAGED, "the file is not in the form in which it was written"
    if reason := _signature(envelope, entry, trusted):
        yield Problem.SIGNATURE, reason
    number, digest = (0, None) if before is None else (before.number, before.digest)
    if entry.number != number + 1:
        yield Problem.CHAIN, f"it follows number {number}: entries between them are missing"
    if entry.predicate["previous"] != digest:
        yield Problem.CHAIN, f"it was signed after another entry than number {number}"
    if entry.predicate["federation"] != stored.federation:
        yield Problem.RECEIPT, f"it is of another federation, {entry.predicate['federation']}"
    if entry.request not in stored.history:
        yield Problem.MISSING, "the history has no receipt of this request"
        return
    try:
        receipt = stored.receipt(entry.request)
    except ReceiptError as error:
        yield Problem.DAMAGED, error.problem
        return
    if reason := objection(receipt, entry, simulated=stored.simulated):
        yield Problem.WIPES if entry.is_about(receipt) else Problem.RECEIPT, reason
        return
    public = {name: value for name, value in receipt.to_public().items() if name in entry.predicate}
    changed = [name for name, value in public.items() if canonical(value) != canonical(entry.predicate[name])]
    if wrong := [name for name in changed if name not in ("wiped", "to_wipe", "given_up")]:
        yield Problem.RECEIPT, f"it states other values than the receipt: {', '.join(wrong)}"


def _receipt_findings(stored: StoredReceipts, entries: Sequence[SignedReceipt]) -> Iterator[Finding]:
    """What is wrong with stored receipts: not signed, other wipe counts, or files that differ from the history."""
    newest = {entry.request: entry for entry in entries}
    for request, text in stored.history.items():
        entry, name = newest.get(request), f"{request}.json"
        if entry is None:
            yield Finding(name, request, problem=Problem.UNSIGNED, reason="the receipt is not signed")
            if reason := _objection(stored, request):
                yield Finding(name, request, problem=Problem.WIPES, reason=reason)
        elif _wipes(stored, request) != wipe_counts(entry.predicate):
            reason = "the number of devices that confirmed is not the one that was signed last"
            yield Finding(name, request, entry.number, Problem.WIPES, reason)
        if request not in stored.files:
            yield Finding(name, request, problem=Problem.MISSING, reason="the file in receipts/ is missing")
        elif stored.files[request] != text.encode("utf-8", "surrogatepass"):
            reason = "the file in receipts/ is not the receipt in the history"
            yield Finding(name, request, problem=Problem.RECEIPT, reason=reason)
    for request in stored.files.keys() - stored.history.keys():
        reason = "the history has no such receipt"
        yield Finding(f"{request}.json", request, problem=Problem.MISSING, reason=reason)


def _objection(stored: StoredReceipts, request: str) -> str:
    """Why a receipt that is not signed must not be."""
    try:
        return objection(stored.receipt(request), None, simulated=stored.simulated)
    except ReceiptError:
        return ""  # it is found when it is to be signed


def _wipes(stored: StoredReceipts, request: str) -> bytes:
    try:
        return wipe_counts(stored.receipt(request).to_dict())
    except ReceiptError:
        return b""


def _signature(envelope: Envelope, entry: SignedReceipt | None, trusted: Sequence[Certificate]) -> str:
    """Why a signature is not to be trusted; '' if it is."""
    signers = envelope.signed_by(trusted)
    if not signers:
        known = envelope.key_id in {each.key_id for each in trusted}
        return "the signature does not fit its content" if known else "it is signed with a key that is not known"
    if entry is not None and not any(each.covers(issued_at(entry.predicate)) for each in signers):
        return f"it was signed at {entry.predicate['issued']}, outside the validity of the certificate"
    return ""


def _parsed(certificates: Sequence[str]) -> list[Certificate]:
    return [Certificate.parse(pem, f"certificate {place}") for place, pem in enumerate(certificates, start=1)]
