"""ReceiptBook: the signed receipts of a run as a page shows them, with the result of their verification."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedforget.attestation.chain import SignedReceipt
from fedforget.attestation.verify import Verification, verify_run
from fedforget.erasure_service.page.background import Background
from fedforget.erasure_service.page.times import Moment
from fedforget.runtime.files import file_signature

#: Where receipts, their signatures and the certificates are in a run folder.
PLACES = ("receipts/*.json", "receipts/signed/*", "service/signing/*", "service/signing/retired/*", "config.toml")


@dataclass(frozen=True)
class ReceiptRow:
    """One signed receipt. ``problems`` is empty if it is valid."""

    number: int
    request: str
    digest: str
    previous: str | None
    issued: Moment | None
    persons: int
    problems: Sequence[str]
    entry: SignedReceipt

    @property
    def valid(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Receipts:
    """All signed receipts, newest first. ``problems`` are those that belong to none of them."""

    rows: Sequence[ReceiptRow]
    problems: Sequence[str]
    head: str | None
    passed: bool
    checked: float

    def find(self, number: int) -> ReceiptRow | None:
        return next((row for row in self.rows if row.number == number), None)

    def of(self, erasure: str | None) -> ReceiptRow | None:
        """The newest receipt of an erasure."""
        return next((row for row in self.rows if row.request == erasure), None)

    @property
    def failing(self) -> int:
        return sum(not row.valid for row in self.rows) + len(self.problems)


class ReceiptBook(Background[Receipts]):
    """The receipts of a run, verified in a thread whenever a file of theirs has changed."""

    def __init__(self, run: Path) -> None:
        super().__init__("verification of receipts", lambda: receipts_of(verify_run(run)), lambda: _files(run))


def receipts_of(found: Verification) -> Receipts:
    """What a verification found, by receipt."""
    names = {entry.path.name: entry.number for entry in found.entries}
    problems: dict[int, list[str]] = defaultdict(list)
    others = []
    for finding in found.findings:
        if finding.passed:
            continue
        number = names.get(finding.name, finding.number)
        if number is None:
            others.append(f"{finding.name}: {finding.reason}")
        else:
            problems[number].append(finding.reason)
    rows = [_row(entry, problems[entry.number]) for entry in reversed(found.entries)]
    return Receipts(rows, others, found.head, found.passed, time.time())


def _row(entry: SignedReceipt, problems: Sequence[str]) -> ReceiptRow:
    said = entry.predicate
    return ReceiptRow(
        number=entry.number,
        request=entry.request,
        digest=entry.digest,
        previous=said["previous"],
        issued=Moment.parse(said["issued"]),
        persons=len(said["persons"]),
        problems=tuple(problems),
        entry=entry,
    )


def _files(run: Path) -> object:
    """What changes whenever a receipt, a signature or a certificate is written or edited."""
    return [(str(path), file_signature(path)) for place in PLACES for path in sorted(run.glob(place))]
