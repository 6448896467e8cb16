"""Statement: what a signed receipt says, an in-toto Statement v1 whose predicate is the public receipt.

The predicate holds the fields of a receipt that may be handed out, without the names, and

    persons           the forgotten persons: pseudonym, and for those who stay the number of items asked for
    federation        the id of the federation
    number            the place in the chain, from 1 on
    previous          SHA-256 of the payload of the statement before it; null for the first
    receipt_sha256    digest of the stored receipt (``receipt_digest``)
    issued            when it was signed
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any

from fedforget.attestation.canonical_json import canonical, read_object
from fedforget.attestation.person import PSEUDONYM, Person, in_order
from fedforget.errors import ReceiptError
from fedforget.server.receipt import Receipt

TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "tag:fedforget,2026:erasure/v1"
SHA256 = re.compile(r"[0-9a-f]{64}")
REQUEST = re.compile(r"[0-9A-Za-z_-]{1,64}")
#: The names of the subjects, and the fields of a receipt with their digests: SHA-256 of the bytes of the item table,
#: then of the other parameters, as 32-bit floats.
SUBJECTS = {"global-parameters-before": "digest_before", "global-parameters-after": "digest_after"}
#: The fields that change while devices confirm.
WIPES = ("wiped", "to_wipe", "given_up")
#: What a receipt without a field has in it.
DEFAULTS = {
    each.name: each.default if each.default_factory is MISSING else each.default_factory()
    for each in fields(Receipt)
    if each.default is not MISSING or each.default_factory is not MISSING
}
_TEXTS = ("federation", "request", "finished", "version", "issued")


def make_statement(
    receipt: Receipt, persons: Sequence[Person], federation: str, number: int, previous: str | None
) -> dict[str, Any]:
    """The statement about a receipt."""
    public = {name: value for name, value in receipt.to_public().items() if name not in ("users", "partial")}
    predicate = {
        **public,
        "persons": [person.to_dict() for person in in_order(persons)],
        "federation": federation,
        "number": number,
        "previous": previous,
        "receipt_sha256": receipt_digest(receipt.to_dict()),
        "issued": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    subject = [{"name": name, "digest": {"sha256": public[field]}} for name, field in SUBJECTS.items()]
    return {"_type": TYPE, "subject": subject, "predicateType": PREDICATE_TYPE, "predicate": predicate}


def receipt_digest(stored: Mapping[str, Any]) -> str:
    """SHA-256 of a stored receipt in canonical JSON: of all fields but the wipe counts and the coverage.

    Fields that have their default value are left out, so that a later version may add fields.
    """
    left_out = (*WIPES, "coverage")
    kept = {name: value for name, value in stored.items() if name not in left_out and not _is_default(name, value)}
    return hashlib.sha256(canonical(kept)).hexdigest()


def wipe_counts(values: Mapping[str, Any]) -> bytes:
    """The wipe counts of a stored receipt or a predicate, to compare them."""
    return canonical([values.get(name, DEFAULTS[name]) for name in WIPES])


def read_statement(payload: bytes, name: str) -> dict[str, Any]:
    """Read an in-toto statement about anything; ``name`` is how errors call its file."""
    try:
        statement = read_object(payload)
        if statement.get("_type") != TYPE:
            raise ValueError(f"its type is {statement.get('_type')!r}")
        if not isinstance(statement.get("predicateType"), str) or not isinstance(statement.get("predicate"), dict):
            raise ValueError("it has no predicate with a type")
    except ValueError as error:
        raise ReceiptError(
            f"{name} is not an in-toto statement: {error}.", "Get it again from who signed it."
        ) from error
    return statement


def parse_statement(payload: bytes, name: str) -> dict[str, Any]:
    """Read a statement about an erasure, and check the form of every field that is used."""
    statement = read_statement(payload, name)
    try:
        if statement["predicateType"] != PREDICATE_TYPE:
            raise ValueError(f"it is of another type, {statement['predicateType']!r}")
        predicate = statement["predicate"]
        _check_predicate(predicate)
        if canonical(statement["subject"]) != canonical(_subject(predicate)):
            raise ValueError("its subjects are not the digests in its receipt")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ReceiptError(f"{name} is not a signed receipt: {reason}.", "Get it again from who signed it.") from error
    return statement


def pseudonyms_in(statement: Mapping[str, Any]) -> frozenset[str]:
    """The pseudonyms of the persons in a statement of any kind; those of a form that is not known are left out."""
    persons = statement["predicate"].get("persons")
    found = [each.get("pseudonym") for each in persons if isinstance(each, dict)] if isinstance(persons, list) else []
    return frozenset(name for name in found if isinstance(name, str))


def _subject(predicate: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": predicate[field]}} for name, field in SUBJECTS.items()]


def _check_predicate(values: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a field of the wrong type or form."""
    digests = ["receipt_sha256", *SUBJECTS.values(), *(["previous"] if values["previous"] is not None else [])]
    for name in _TEXTS:
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is not text")
    for name in digests:
        if not (isinstance(values[name], str) and SHA256.fullmatch(values[name])):
            raise ValueError(f"{name} is not a SHA-256 digest")
    if not REQUEST.fullmatch(values["request"]):
        raise ValueError("request is not an id")
    if not is_count(values["number"]) or values["number"] < 1:
        raise ValueError("number is not a place in a chain")
    for name in WIPES:
        if not (values.get(name) is None or is_count(values[name])):
            raise ValueError(f"{name} is not a count")
    issued_at(values)
    for person in values["persons"]:
        known = isinstance(person["pseudonym"], str) and PSEUDONYM.fullmatch(person["pseudonym"])
        if not known or not is_count(person.get("items_requested", 0)):
            raise ValueError("persons holds something else than persons")


def issued_at(predicate: Mapping[str, Any]) -> datetime:
    """When a statement was signed, according to itself."""
    time = datetime.fromisoformat(predicate["issued"])
    if time.tzinfo is None:
        raise ValueError("issued has no time zone")
    return time


def is_count(value: object) -> bool:
    """Whether a value is a whole number from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_default(name: str, value: object) -> bool:
    return name in DEFAULTS and canonical(value) == canonical(DEFAULTS[name])
