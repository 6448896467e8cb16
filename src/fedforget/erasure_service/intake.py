"""Intake: from a request as it arrives to one that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from fedforget.erasure_service.batching import SKEW
from fedforget.erasure_service.callback_address import CallbackError, validate
from fedforget.erasure_service.item_kind import ItemKind
from fedforget.erasure_service.opendsr import CreateRequest
from fedforget.erasure_service.subject_requests import (
    State,
    SubjectRequest,
    digest_of,
    pseudonyms_of,
    reference_of,
)
from fedforget.erasure_service.tokens import Holder, Role

if TYPE_CHECKING:
    from fedforget.erasure_service.service import ErasureService


def intake(service: ErasureService, asked: CreateRequest, holder: Holder) -> SubjectRequest:
    """Check and store a request. One that is stored already is answered from there, whatever settings are now."""
    id_ = str(asked.subject_request_id)
    digest = digest_of(id_, asked.canonical())
    if (known := service.requests.find(reference_of(id_))) is not None:
        return known.again(holder.id, digest)
    stored = service.requests.add(_checked(service, asked, holder, digest))
    service.dispatcher.wake()
    return stored


def _checked(service: ErasureService, asked: CreateRequest, holder: Holder, digest: str) -> SubjectRequest:
    """A new request. What is unknown is accepted like what is known: the answer tells nothing about it."""
    id_, now = str(asked.subject_request_id), service.dispatcher.clock()
    if asked.submitted_time.timestamp() > now + SKEW:
        raise HTTPException(400, "submitted_time is in the future.")
    if asked.items:
        _check_items(service, asked)
    submitted = min(asked.submitted_time.timestamp(), now)
    deadline = submitted + service.settings.batching.deadline.total_seconds()
    return SubjectRequest(
        reference_of(id_),
        id_,
        tuple(asked.users),
        tuple(asked.items),
        _callback_urls(service, asked),
        pseudonyms_of(id_, asked.users),
        digest,
        holder.id,
        asked.regulation,
        now,
        submitted,
        deadline,
        service.dispatcher.expected(deadline),
        State.PENDING,
        approved=not service.settings.approval,
        num_items=len(asked.items),
    )


def _check_items(service: ErasureService, asked: CreateRequest) -> None:
    """Refuse items that can be none of the run, whoever is asked for."""
    if service.engine != "simulation":
        raise HTTPException(
            400, "Items are forgotten on the user's device: fedforget device forget. Here whole persons are."
        )
    kind = ItemKind.of_run(service.run)
    if kind is not None and not kind.names(asked.items):
        raise HTTPException(400, f"extensions.fedforget.items: the items of this federation are {kind.value}.")


def _callback_urls(service: ErasureService, asked: CreateRequest) -> tuple[str, ...]:
    targets, private = service.settings.callback_targets, service.settings.callback_private
    try:
        return tuple(validate(url, targets, private) for url in asked.status_callback_urls)
    except CallbackError as error:
        raise HTTPException(400, f"status_callback_urls: {error.problem} {error.hint}") from error


def cancel(service: ErasureService, reference: str, holder: Holder) -> None:
    """Cancel a pending request; operators may also cancel one that waits again since its erasure was refused."""
    with service.requests.writing(scrubbed=True):
        before = service.requests.find(reference, service.requests.db)
        assert before is not None
        if before.state == State.CANCELLED:
            return
        state = before.state if holder.role == Role.OPERATOR else before.told
        if state != State.PENDING:
            raise HTTPException(400, f"The request is {state}; only a pending one can be cancelled.")
        service.requests.finish(reference, State.CANCELLED, service.dispatcher.clock())
        service.notifications.add_one(reference, before)
