"""The routes of requests: to ask for an erasure, to follow it, and to approve or cancel it."""

from __future__ import annotations

import re
import time
import uuid
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from fedforget.erasure_service.intake import cancel, intake
from fedforget.erasure_service.opendsr import ERASURE, FORMAT, IDENTITY, REGULATIONS, CreateRequest, rfc3339
from fedforget.erasure_service.page.rendering import render
from fedforget.erasure_service.page.visitors import Anyone, Asked, Operated, Visitor, service_of
from fedforget.erasure_service.subject_requests import REFERENCE, SubjectRequest, reference_of

router = APIRouter(include_in_schema=False)
#: Requests of a page.
LIMIT = 50
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
#: A request is found by the id that was shown when it was made, or by the hash of that in lists.
KEY = re.compile(f"[0-9a-f]{{{REFERENCE}}}|{UUID4}")


@router.get("/requests")
async def requests(request: Request, visitor: Anyone, before: Annotated[str, Query(max_length=60)] = "") -> Response:
    """All requests that the visitor may see, newest first."""
    rows, after = request.app.state.pages.page(visitor, LIMIT, _place(before))
    return render(request, "requests.html", visitor, rows=rows, after=after, before=before)


@router.post("/requests")
async def ask(request: Request, fields: Asked) -> Response:
    """Ask for the erasure of one person, as by the API; the id of the request is made here."""
    visitor: Visitor = request.state.visitor
    id_, user = str(uuid.uuid4()), fields.get("user", "")
    content = {
        "regulation": fields.get("regulation", ""),
        "subject_request_id": id_,
        "subject_request_type": ERASURE,
        "submitted_time": rfc3339(time.time()),
        "subject_identities": [{"identity_type": IDENTITY, "identity_value": user.strip(), "identity_format": FORMAT}],
    }
    if content["regulation"] not in REGULATIONS:
        raise HTTPException(400, "Choose a regulation from the list.")
    try:
        asked = CreateRequest.model_validate(content)
    except ValidationError as error:
        raise HTTPException(400, "The user id is empty, too long, or has characters that cannot be shown.") from error
    stored = await to_thread.run_sync(intake, service_of(request), asked, visitor.holder)
    request.state.reference = stored.reference
    return RedirectResponse(f"/requests/{id_}", 303)


@router.get("/requests/{key}")
async def one(request: Request, key: str, visitor: Anyone) -> Response:
    """One request: its state, and what proves that it was carried out."""
    return _shown(request, "request.html", key, visitor)


@router.get("/fragments/requests/{key}")
async def one_fragment(request: Request, key: str, visitor: Anyone) -> Response:
    """The part of a request's page that changes."""
    return _shown(request, "request_live.html", key, visitor)


@router.get("/requests/{key}/confirmation")
async def confirmation(request: Request, key: str, visitor: Anyone) -> Response:
    """The signed confirmation of a completed request, as a file."""
    found = _find(request, key, visitor)
    if found.statement is None:
        raise HTTPException(409, "There is a confirmation once the request is completed.")
    name = f"confirmation-{found.reference}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(found.statement, media_type="application/json", headers=headers)


@router.post("/requests/{reference}/approve")
async def approve(request: Request, reference: str, fields: Operated) -> Response:
    """Approve a request that waits for it."""
    service = service_of(request)
    _find(request, reference, request.state.visitor)
    await to_thread.run_sync(service.requests.approve, reference)
    service.dispatcher.wake()
    return RedirectResponse("/?done=approved", 303)


@router.post("/requests/{reference}/cancel")
async def cancel_request(request: Request, reference: str, fields: Asked) -> Response:
    """Cancel a pending request: any for operators, their own for requesters."""
    _find(request, reference, request.state.visitor)
    await to_thread.run_sync(cancel, service_of(request), reference, request.state.visitor.holder)
    return RedirectResponse("/?done=cancelled", 303)


def _shown(request: Request, template: str, key: str, visitor: Visitor) -> Response:
    found, pages = _find(request, key, visitor), request.app.state.pages
    id_ = key if len(key) > REFERENCE else None
    receipts = pages.receipts.get() if visitor.looks else None
    receipt = None if receipts is None or found.batch is None else receipts.of(found.batch)
    row = pages.row(found, visitor)
    return render(request, template, visitor, row=row, id=id_, key=key, receipt=receipt)


def _find(request: Request, key: str, visitor: Visitor) -> SubjectRequest:
    """The request with an id or a reference, if the visitor may see it."""
    found = None
    if KEY.fullmatch(key):
        reference = key if len(key) == REFERENCE else reference_of(key)
        request.state.reference = reference
        found = service_of(request).requests.find(reference)
    if found is None or not (visitor.looks or found.holder == visitor.holder.id):
        raise HTTPException(404, "There is no such request, or it was made with another token.")
    return found


def _place(cursor: str) -> tuple[float, str] | None:
    """The time and reference in a cursor."""
    received, _, reference = cursor.partition("_")
    try:
        return (float(received), reference) if cursor else None
    except ValueError as error:
        raise HTTPException(400, "This is not the address of a page of requests.") from error
