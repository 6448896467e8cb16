"""The answers of the native API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from fedforget.attestation.chain import SignedReceipt
from fedforget.attestation.verify import Verification
from fedforget.erasure_service.opendsr import rfc3339
from fedforget.erasure_service.subject_requests import State, SubjectRequest


class Health(BaseModel):
    """The service answers."""

    status: str
    version: str


class Readiness(BaseModel):
    """Whether requests can be carried out."""

    ready: bool


class Progress(BaseModel):
    """An erasure that is carried out: rounds done of all."""

    done: int
    total: int


class Federation(BaseModel):
    """The federation of the run, and what is in the way of carrying out requests."""

    federation: str
    engine: str
    model: str
    method: dict[str, Any]
    rounds: int
    members: int
    items: int
    nodes: int | None
    progress: Progress | None
    estimate_seconds: float | None
    damage: int
    problems: list[str]
    updated: str


class Round(BaseModel):
    """A round: how many devices were asked and answered, and why others did not count."""

    round: int
    asked: int
    answered: int
    failures: dict[str, int]
    seconds: float
    loss: float | None


class Accuracy(BaseModel):
    """The accuracy after a round: means over users, at ``k``, in both protocols."""

    round: int
    k: int
    users: int
    sampled: dict[str, float]
    full: dict[str, float]


class Rounds(BaseModel):
    """Rounds, newest first; ``next`` is the cursor of the following page."""

    items: list[Round]
    next: str | None


class Devices(BaseModel):
    """Devices in the newest rounds, in numbers."""

    members: int
    nodes: int | None
    rounds: int
    asked: int
    answered: int
    failures: dict[str, int]
    accuracy: list[Accuracy]


class Queued(BaseModel):
    """A request, without anything that names a person."""

    reference: str
    state: State
    kind: str
    regulation: str
    received_time: str
    deadline_time: str
    expected_completion_time: str
    completed_time: str | None
    approved: bool
    erasure: str | None
    note: str


class Queue(BaseModel):
    """Requests, newest first; ``next`` is the cursor of the following page."""

    items: list[Queued]
    next: str | None


class Signed(BaseModel):
    """A signed receipt in the chain."""

    number: int
    request: str
    digest: str
    previous: str | None
    issued: str


class Receipts(BaseModel):
    """Signed receipts, newest first; ``head`` is the digest of the newest."""

    items: list[Signed]
    next: str | None
    head: str | None


class Checked(BaseModel):
    """The check of one receipt, or of the chain."""

    name: str
    passed: bool
    detail: str


class Verified(BaseModel):
    """The check of all receipts."""

    passed: bool
    head: str | None
    receipts: list[Checked]


class Started(BaseModel):
    """How many requests were waiting when they were started."""

    waiting: int


def queued(request: SubjectRequest) -> Queued:
    """A request as it is listed."""
    return Queued(
        reference=request.reference,
        state=request.state,
        kind="items" if request.num_items else "person",
        regulation=request.regulation,
        received_time=rfc3339(request.received),
        deadline_time=rfc3339(request.deadline),
        expected_completion_time=rfc3339(request.expected),
        completed_time=None if request.finished is None else rfc3339(request.finished),
        approved=request.approved,
        erasure=request.batch,
        note=request.note,
    )


def signed(entry: SignedReceipt) -> Signed:
    """A signed receipt as it is listed."""
    previous, issued = entry.predicate["previous"], entry.predicate["issued"]
    return Signed(number=entry.number, request=entry.request, digest=entry.digest, previous=previous, issued=issued)


def verified(result: Verification) -> Verified:
    """The check of all receipts."""
    receipts = [Checked(name=one.name, passed=one.passed, detail=one.reason) for one in result.findings]
    return Verified(passed=result.passed, head=result.head, receipts=receipts)
