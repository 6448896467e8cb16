"""The routes of the OpenDSR API."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from fedforget.erasure_service import opendsr
from fedforget.erasure_service.access import Requester
from fedforget.erasure_service.intake import cancel, intake
from fedforget.erasure_service.opendsr import (
    ERASURE,
    FORMAT,
    IDENTITY,
    PREFIX,
    VERSION,
    Cancelled,
    Created,
    CreateRequest,
    Discovery,
    Status,
    SupportedIdentity,
)
from fedforget.erasure_service.problems import documented
from fedforget.erasure_service.subject_requests import SubjectRequest, reference_of
from fedforget.erasure_service.tokens import Holder, Role

router = APIRouter(prefix=PREFIX, tags=["OpenDSR"])
Answer = TypeVar("Answer", bound=BaseModel)
RequestId = Annotated[UUID, Path(description="The subject_request_id of the request.")]


class PemResponse(Response):
    """A certificate."""

    media_type = "application/x-pem-file"


@router.get("/discovery")
async def discovery(request: Request) -> Discovery:
    """What this service supports."""
    return Discovery(
        api_version=VERSION,
        supported_identities=[SupportedIdentity(identity_type=IDENTITY, identity_format=FORMAT)],
        supported_subject_request_types=[ERASURE],
        supported_extensions=["fedforget.items"],
        processor_certificate=f"{_base(request)}{PREFIX}/certificate",
    )


@router.get("/certificate", response_class=PemResponse)
async def certificate(request: Request) -> PemResponse:
    """The certificate of the key that signs answers, callbacks and receipts, as PEM."""
    return PemResponse(request.app.state.service.key.get().certificate_pem)


@router.post("/opendsr_requests", status_code=201, responses=documented(409, standard=True))
async def create(request: Request, asked: CreateRequest, holder: Requester) -> Created:
    """Ask for an erasure. The same request again gets the same answer and changes nothing."""
    service, body = request.app.state.service, await request.body()
    stored = await to_thread.run_sync(intake, service, asked, holder)
    request.state.reference = stored.reference
    return _signed(request, opendsr.created(stored, str(asked.subject_request_id), body), 201)


@router.get("/opendsr_requests/{id}", responses=documented(404, standard=True))
async def status(request: Request, id: RequestId, holder: Requester) -> Status:
    """The state of a request."""
    found = _find(request, id, holder)
    return _signed(request, opendsr.status_of(found, str(id), _base(request)))


@router.get("/opendsr_requests/{id}/confirmation", responses=documented(404, 409, standard=True))
async def confirmation(request: Request, id: RequestId, holder: Requester) -> dict[str, Any]:
    """The signed confirmation of a completed request: an in-toto statement in a DSSE envelope."""
    found = _find(request, id, holder)
    if found.statement is None:
        raise HTTPException(409, f"The request is {found.told}; there is a confirmation once it is completed.")
    return Response(found.statement, media_type="application/json")  # type: ignore[return-value]


@router.delete("/opendsr_requests/{id}", status_code=202, responses=documented(404, standard=True))
async def delete(request: Request, id: RequestId, holder: Requester) -> Cancelled:
    """Cancel a request that is pending. The same call again gets the same answer."""
    found = _find(request, id, holder)
    await to_thread.run_sync(cancel, request.app.state.service, found.reference, holder)
    times = opendsr.rfc3339(found.received)
    answer = Cancelled(controller_id=found.holder, subject_request_id=str(id), received_time=times)
    return _signed(request, answer, 202)


def _find(request: Request, id_: UUID, holder: Holder) -> SubjectRequest:
    """The request with an id, if the holder made it or is an operator."""
    reference = reference_of(str(id_))
    request.state.reference = reference
    found: SubjectRequest | None = request.app.state.service.requests.find(reference)
    if found is None or not (found.holder == holder.id or holder.role == Role.OPERATOR):
        raise HTTPException(404, "There is no such request.")
    return found


def _signed(request: Request, value: Answer, code: int = 200) -> Answer:
    """An answer with the standard's signature over its body."""
    content = value.model_dump(mode="json", exclude_none=True)
    response = JSONResponse(content, code)
    response.headers.update(request.app.state.service.signature_headers(bytes(response.body)))
    return response  # type: ignore[return-value]


def _base(request: Request) -> str:
    url: str = request.app.state.service.settings.url
    return url
