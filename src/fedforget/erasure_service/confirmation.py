"""Confirmation: what whoever made a request gets when it is completed, as a signed in-toto statement.

It is the same whether the person was a member or not. Its subject is the request, by the SHA-256 of its id; its
predicate holds the pseudonyms of the persons, which are salted with that id.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from fedforget.attestation.canonical_json import canonical
from fedforget.attestation.envelope import Envelope
from fedforget.attestation.keys import SigningKey
from fedforget.attestation.statement import TYPE
from fedforget.erasure_service.opendsr import ERASURE, rfc3339
from fedforget.erasure_service.subject_requests import SubjectRequest

CONFIRMATION_TYPE = "tag:fedforget,2026:confirmation/v1"


def confirmation(request: SubjectRequest, finished: float, federation: str, key: SigningKey) -> str:
    """The confirmation of a request, as a DSSE envelope in JSON."""
    assert request.id is not None
    digest = hashlib.sha256(uuid.UUID(request.id).bytes).hexdigest()
    asked: dict[str, Any] = {"items_requested": len(request.items)} if request.items else {}
    statement = {
        "_type": TYPE,
        "subject": [{"name": "subject-request", "digest": {"sha256": digest}}],
        "predicateType": CONFIRMATION_TYPE,
        "predicate": {
            "federation": federation,
            "regulation": request.regulation,
            "subject_request_type": ERASURE,
            "persons": [{"pseudonym": name, **asked} for name in request.pseudonyms],
            "received": rfc3339(request.received),
            "completed": rfc3339(finished),
        },
    }
    return Envelope.sign(canonical(statement), key).to_bytes().decode()
