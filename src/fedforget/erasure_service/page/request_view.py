"""RequestRow: a request as a page shows it, without anything that names a person."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.erasure_service.batching import Batching
from fedforget.erasure_service.page.times import Moment
from fedforget.erasure_service.page.visitors import Visitor
from fedforget.erasure_service.subject_requests import State, SubjectRequest

LABELS = {
    State.PENDING: "pending",
    State.IN_PROGRESS: "in progress",
    State.COMPLETED: "completed",
    State.CANCELLED: "cancelled",
}
#: How regulations are called.
REGULATIONS = {
    "gdpr": "GDPR",
    "ccpa": "CCPA",
    "lgpd": "LGPD",
    "uk_gdpr": "UK GDPR",
    "pipeda": "PIPEDA",
    "appi": "APPI",
    "other": "other",
}


@dataclass(frozen=True)
class RequestRow:
    """A request. ``near`` says in words that its deadline is near or past; it ``waits`` for approval, or not.

    ``note``, ``erasure`` and ``asked_by``, the name of a token, are for those who may look at everything.
    """

    reference: str
    state: State
    label: str
    kind: str
    regulation: str
    received: Moment
    deadline: Moment
    near: str
    expected: Moment
    finished: Moment | None
    note: str
    erasure: str | None
    asked_by: str
    waits: bool
    may_approve: bool
    may_cancel: bool
    confirmed: bool

    @property
    def open(self) -> bool:
        return self.finished is None


def request_row(
    request: SubjectRequest, visitor: Visitor, batching: Batching, duration: float, now: float, asked_by: str = ""
) -> RequestRow:
    """A request as a visitor may see it.

    Whoever may only ask does not see why an erasure was refused, or which one it is: that would tell who is a member.
    """
    state, finished = request.state if visitor.looks else request.told, request.finished is not None
    pending = state == State.PENDING
    waits = pending and not request.approved
    return RequestRow(
        reference=request.reference,
        state=state,
        label="waits for approval" if waits else LABELS[state],
        kind=_kind(request.num_items),
        regulation=REGULATIONS.get(request.regulation, request.regulation),
        received=Moment.of(request.received, now),
        deadline=Moment.of(request.deadline, now),
        near="" if finished else _near(request.deadline, batching, duration, now),
        expected=Moment.of(max(request.expected, now) if not finished else request.expected, now),
        finished=None if request.finished is None else Moment.of(request.finished, now),
        note=request.note if visitor.looks else "",
        erasure=request.batch if visitor.looks else None,
        asked_by=asked_by if visitor.looks else "",
        waits=waits,
        may_approve=waits and visitor.operates,
        may_cancel=pending and (visitor.operates or (visitor.asks and request.holder == visitor.holder.id)),
        confirmed=request.statement is not None,
    )


def _kind(items: int) -> str:
    """What is forgotten: a person, or some items of a person."""
    return ("1 item" if items == 1 else f"{items} items") if items else "person"


def _near(deadline: float, batching: Batching, duration: float, now: float) -> str:
    """That a deadline is near or past, in words; '' if it is neither."""
    if deadline < now:
        return "overdue"
    return "deadline near" if batching.is_near(deadline, now, duration) else ""
