"""ReceiptChain: the signed receipts of a run, each with the digest of the one before.

They are files ``receipts/signed/NNNNNN-REQUEST.json`` in the run folder, numbered from 1 without gaps. A request has a
further one whenever the number of devices that confirmed, or the persons, have changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.attestation.canonical_json import canonical
from fedforget.attestation.envelope import Envelope
from fedforget.attestation.keys import SigningKey
from fedforget.attestation.person import Person, in_order, persons_of
from fedforget.attestation.statement import (
    REQUEST,
    make_statement,
    parse_statement,
    receipt_digest,
    wipe_counts,
)
from fedforget.errors import ReceiptError
from fedforget.runtime.files import make_folder, only_writer, write_file
from fedforget.server.receipt import Receipt

FOLDER = Path("receipts") / "signed"
NAME = re.compile(r"([0-9]{6,})-([0-9A-Za-z_-]{1,64})\.json")


@dataclass(frozen=True)
class SignedReceipt:
    """One entry of a chain. ``digest`` is the SHA-256 of its payload, ``statement`` what it says."""

    number: int
    request: str
    digest: str
    path: Path
    statement: dict[str, Any]

    @classmethod
    def of(cls, path: Path, envelope: Envelope, *, named: bool = True) -> SignedReceipt:
        """The entry in a file, whose name has its number and request unless it is not ``named``."""
        statement = parse_statement(envelope.payload, str(path))
        number, request = statement["predicate"]["number"], statement["predicate"]["request"]
        if named and path.name != file_name(number, request):
            raise ReceiptError(
                f"{path} holds receipt number {number} of request {request}.", "Give it the name it was written with."
            )
        return cls(number, request, hashlib.sha256(envelope.payload).hexdigest(), path, statement)

    @property
    def predicate(self) -> dict[str, Any]:
        """The signed receipt itself."""
        values: dict[str, Any] = self.statement["predicate"]
        return values

    @property
    def persons(self) -> list[Person]:
        """The persons that it names."""
        return [Person(each["pseudonym"], each.get("items_requested")) for each in self.predicate["persons"]]

    def says(self, receipt: Receipt) -> bool:
        """Whether it says what a receipt says now, with the number of devices that confirmed."""
        return self.is_about(receipt) and wipe_counts(self.predicate) == wipe_counts(receipt.to_dict())

    def names(self, persons: Sequence[Person]) -> bool:
        """Whether it names these persons and nobody else."""
        return self.persons == in_order(persons)

    def is_about(self, receipt: Receipt) -> bool:
        """Whether it is about a receipt, with whatever number of devices that confirmed."""
        same: bool = self.predicate["receipt_sha256"] == receipt_digest(receipt.to_dict())
        return same


class ReceiptChain:
    """The chain of a run folder. Reading it checks the form of its files; ``verify_run`` checks everything."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER

    def entries(self) -> list[SignedReceipt]:
        """All entries, oldest first."""
        return [_load(path) for path in self._paths()]

    @property
    def head(self) -> str | None:
        """The digest of the newest entry; None without any. Whoever has noted it can tell if entries were removed."""
        newest = self._newest(self._paths())
        return None if newest is None else newest.digest

    def newest(self, request: str) -> SignedReceipt | None:
        """The newest entry of a request."""
        return self._newest([path for path in self._paths() if _parts(path)[1] == request])

    def newest_of_each(self) -> dict[str, SignedReceipt]:
        """The newest entry of each request."""
        paths = {_parts(path)[1]: path for path in self._paths()}
        return {request: _load(path) for request, path in paths.items()}

    def append(
        self, receipt: Receipt, persons: Sequence[Person] | None, key: SigningKey, federation: str
    ) -> SignedReceipt:
        """Sign a receipt, unless the newest entry of its request says the same; returns that entry.

        Without ``persons`` they are those of that entry, or by the names in the receipt if there is none.
        """
        if not REQUEST.fullmatch(receipt.request):
            raise ReceiptError(
                f"The request {receipt.request!r} cannot name a file.", "Request ids are letters, digits, - and _."
            )
        with only_writer(make_folder(self.folder), wait=True):
            paths = self._paths()
            known = self._newest([path for path in paths if _parts(path)[1] == receipt.request])
            if persons is None:
                persons = persons_of(receipt) if known is None else known.persons
            if known is not None and known.says(receipt) and known.names(persons):
                return known
            key.check_in_use()
            for part in self.folder.glob(".*.part"):
                part.unlink(missing_ok=True)
            last = self._newest(paths)
            number, previous = (1, None) if last is None else (last.number + 1, last.digest)
            statement = make_statement(receipt, persons, federation, number, previous)
            envelope = Envelope.sign(canonical(statement), key)
            path = self.folder / file_name(number, receipt.request)
            entry = SignedReceipt.of(path, envelope)
            write_file(path, envelope.to_bytes())
            return entry

    def _paths(self) -> list[Path]:
        found = (path for path in self.folder.glob("*.json") if NAME.fullmatch(path.name))
        return sorted(found, key=_parts)

    def _newest(self, paths: Sequence[Path]) -> SignedReceipt | None:
        return _load(paths[-1]) if paths else None


def file_name(number: int, request: str) -> str:
    """The name of the file of an entry."""
    return f"{number:06d}-{request}.json"


def _load(path: Path) -> SignedReceipt:
    return SignedReceipt.of(path, Envelope.load(path))


def _parts(path: Path) -> tuple[int, str]:
    found = NAME.fullmatch(path.name)
    assert found is not None
    return int(found[1]), found[2]
