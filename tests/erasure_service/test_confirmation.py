"""Confirmations: what they say about the person, without the service."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.attestation import SigningKey
from fedforget.attestation.envelope import Envelope
from fedforget.erasure_service.confirmation import confirmation
from fedforget.erasure_service.subject_requests import State, SubjectRequest, pseudonyms_of, reference_of
from tests.attestation.made_runs import ANNA, ANNAS_REQUEST, make_run

ASKED = SubjectRequest(
    reference=reference_of(ANNAS_REQUEST),
    id=ANNAS_REQUEST,
    users=(ANNA,),
    items=(),
    callbacks=(),
    pseudonyms=pseudonyms_of(ANNAS_REQUEST, [ANNA]),
    digest="",
    holder="app",
    regulation="gdpr",
    received=0.0,
    submitted=0.0,
    deadline=9.0,
    expected=9.0,
    state=State.IN_PROGRESS,
    approved=True,
)


def persons_in(request: SubjectRequest, run: Path) -> list[dict[str, Any]]:
    signed = confirmation(request, 5.0, "f00dfeed", SigningKey.open(run))
    found: list[dict[str, Any]] = json.loads(Envelope.parse(signed.encode(), "it").payload)["predicate"]["persons"]
    return found


def test_the_number_of_items_that_were_asked_for(tmp_path: Path) -> None:
    run, person = make_run(tmp_path / "run"), {"pseudonym": ASKED.pseudonyms[0]}
    assert persons_in(ASKED, run) == [person]
    assert persons_in(replace(ASKED, items=("50", "181")), run) == [person | {"items_requested": 2}]
