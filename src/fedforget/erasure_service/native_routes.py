"""The routes of the native API, below ``/v1``."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request
from pydantic import AfterValidator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from fedforget.attestation.verify import verify_run
from fedforget.erasure_service import native_models as models
from fedforget.erasure_service.access import Operator, Reader
from fedforget.erasure_service.intake import cancel
from fedforget.erasure_service.problems import documented
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.status import RunStatus
from fedforget.erasure_service.subject_requests import REFERENCE, State, reference_of
from fedforget.version import __version__

router = APIRouter(prefix="/v1", tags=["Service"])
MOST = 200
Limit = Annotated[int, Query(ge=1, le=MOST, description="Entries of a page.")]
#: Where a page begins: after an entry with a number, or with a time and a reference.
_NEXT = "The `next` of the page before."
NumberCursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,15}$", description=_NEXT)]
PlaceCursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,12}(\.[0-9]{1,9})?_[0-9a-f]{16}$", description=_NEXT)]
#: What names a request: its reference, or its UUID, of which that is a hash.
NAMED = rf"^([0-9a-f]{{{REFERENCE}}}|[0-9a-fA-F]{{8}}(-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}})$"
Reference = Annotated[
    str,
    Path(pattern=NAMED, description="The reference of a request, or its UUID."),
    AfterValidator(lambda name: name if len(name) == REFERENCE else reference_of(name)),
]


@router.get("/health")
async def health() -> models.Health:
    """Whether the service answers."""
    return models.Health(status="ok", version=__version__)


@router.get("/ready", responses={503: {"model": models.Readiness}})
async def ready(request: Request) -> models.Readiness:
    """Whether requests can be carried out now. What is in the way: see federation."""
    answer = models.Readiness(ready=not _service(request).problems())
    return answer if answer.ready else JSONResponse(answer.model_dump(), 503)  # type: ignore[return-value]


@router.get("/federation", responses=documented(503))
async def federation(request: Request, holder: Reader) -> models.Federation:
    """The federation, and the erasure that is carried out."""
    status = _status(request)
    progress = None if status.progress is None else models.Progress(**asdict(status.progress))
    return models.Federation(
        federation=status.federation,
        engine=status.engine,
        model=status.model,
        method=status.method,
        rounds=status.rounds,
        members=status.members,
        items=status.items,
        nodes=status.nodes,
        progress=progress,
        estimate_seconds=status.estimate_seconds,
        damage=status.fallbacks,
        problems=_service(request).problems(),
        updated=status.updated,
    )


@router.get("/rounds", responses=documented(503))
async def rounds(request: Request, holder: Reader, limit: Limit = 20, cursor: NumberCursor = None) -> models.Rounds:
    """The newest rounds: devices asked and answered, and failures by reason."""
    before = None if cursor is None else int(cursor)
    found = [one for one in reversed(_status(request).recent) if before is None or one.round < before]
    items = [models.Round(**asdict(one)) for one in found[:limit]]
    return models.Rounds(items=items, next=str(items[-1].round) if len(found) > limit else None)


@router.get("/devices", responses=documented(503))
async def devices(request: Request, holder: Reader) -> models.Devices:
    """How many devices answered in the newest rounds, and why others did not count. No ids."""
    status, reasons = _status(request), Counter[str]()
    for one in status.recent:
        reasons.update(one.failures)
    return models.Devices(
        members=status.members,
        nodes=status.nodes,
        rounds=len(status.recent),
        asked=sum(one.asked for one in status.recent),
        answered=sum(one.answered for one in status.recent),
        failures=dict(reasons),
        accuracy=[models.Accuracy(**asdict(one)) for one in status.accuracy],
    )


@router.get("/requests", responses=documented())
async def requests(
    request: Request, holder: Reader, limit: Limit = 50, cursor: PlaceCursor = None, state: State | None = None
) -> models.Queue:
    """Requests, newest first."""
    before = _place(cursor)
    found = _service(request).requests.page(limit + 1, before, state)
    last = found[limit - 1] if len(found) > limit else None
    after = None if last is None else f"{last.received!r}_{last.reference}"
    return models.Queue(items=[models.queued(one) for one in found[:limit]], next=after)


@router.get("/requests/{reference}", responses=documented(404))
async def one_request(request: Request, reference: Reference, holder: Reader) -> models.Queued:
    """One request, as in the list."""
    return _queued(_known(request, reference), reference)


@router.post("/requests/{reference}/approve", responses=documented(404, 409))
async def approve(request: Request, reference: Reference, holder: Operator) -> models.Queued:
    """Approve a request that waits for it."""
    service = _known(request, reference)
    await to_thread.run_sync(service.requests.approve, reference)
    service.dispatcher.wake()
    return _queued(service, reference)


@router.post("/requests/{reference}/cancel", responses=documented(404, 409))
async def cancel_request(request: Request, reference: Reference, holder: Operator) -> models.Queued:
    """Cancel a pending request."""
    service = _known(request, reference)
    await to_thread.run_sync(cancel, service, reference, holder)
    return _queued(service, reference)


@router.post("/batches", status_code=202, responses=documented())
async def start_now(request: Request, holder: Operator) -> models.Started:
    """Carry out all approved requests that wait, now."""
    service = _service(request)
    waiting = service.requests.waiting(math.inf)
    service.dispatcher.wake(start_now=True)
    return models.Started(waiting=0 if waiting is None else waiting.count)


@router.get("/receipts", responses=documented())
async def receipts(request: Request, holder: Reader, limit: Limit = 50, cursor: NumberCursor = None) -> models.Receipts:
    """Signed receipts, newest first, and the head of their chain."""
    chain, before = _service(request).chain, None if cursor is None else int(cursor)
    entries = await to_thread.run_sync(chain.entries)
    found = [one for one in reversed(entries) if before is None or one.number < before]
    items = [models.signed(one) for one in found[:limit]]
    after = str(items[-1].number) if len(found) > limit else None
    return models.Receipts(items=items, next=after, head=entries[-1].digest if entries else None)


@router.get("/receipts/{number}", responses=documented(404))
async def receipt(request: Request, number: Annotated[int, Path(ge=1, le=10**9)], holder: Reader) -> Response:
    """A signed receipt: an in-toto statement in a DSSE envelope."""
    entries = await to_thread.run_sync(_service(request).chain.entries)
    found = next((one for one in entries if one.number == number), None)
    if found is None:
        raise HTTPException(404, "There is no such receipt.")
    return Response(await to_thread.run_sync(found.path.read_bytes), media_type="application/json")


@router.get("/verification", responses=documented())
async def verification(request: Request, holder: Reader) -> models.Verified:
    """Check all receipts of the run: signatures, chain, and stored receipts."""
    service = _service(request)
    return models.verified(await to_thread.run_sync(verify_run, service.run))


def _service(request: Request) -> ErasureService:
    service: ErasureService = request.app.state.service
    return service


def _status(request: Request) -> RunStatus:
    status = _service(request).worker.status
    if status is None:
        raise HTTPException(503, "The worker process has not reported yet.", {"Retry-After": "5"})
    return status


def _known(request: Request, reference: str) -> ErasureService:
    service = _service(request)
    request.state.reference = reference
    if service.requests.find(reference) is None:
        raise HTTPException(404, "There is no such request.")
    return service


def _queued(service: ErasureService, reference: str) -> models.Queued:
    found = service.requests.find(reference)
    assert found is not None
    return models.queued(found)


def _place(cursor: str | None) -> tuple[float, str] | None:
    """The time and the reference in a cursor."""
    if cursor is None:
        return None
    received, _, reference = cursor.partition("_")
    return float(received), reference
