"""The routes of signed receipts: the list, one of them, and its file."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedforget.erasure_service.page.receipt_book import ReceiptRow
from fedforget.erasure_service.page.rendering import render
from fedforget.erasure_service.page.times import Moment
from fedforget.erasure_service.page.visitors import Looker

router = APIRouter(include_in_schema=False)
Number = Annotated[int, Path(ge=1, le=10**9)]


@router.get("/receipts")
async def receipts(request: Request, visitor: Looker) -> Response:
    """All signed receipts, with the result of their verification."""
    found = await to_thread.run_sync(request.app.state.pages.receipts.wait)
    checked = None if found is None else Moment.of(found.checked)
    return render(request, "receipts.html", visitor, receipts=found, checked=checked, shown=None)


@router.get("/receipts/{number}")
async def receipt(request: Request, number: Number, visitor: Looker) -> Response:
    """What a receipt says, and how to verify it."""
    row = await _find(request, number)
    return render(request, "receipt.html", visitor, row=row, said=row.entry.predicate)


@router.get("/receipts/{number}/file")
async def file(request: Request, number: Number, visitor: Looker) -> Response:
    """A signed receipt as a file: an in-toto statement in a DSSE envelope."""
    row = await _find(request, number)
    headers = {"Content-Disposition": f'attachment; filename="{row.entry.path.name}"'}
    content = await to_thread.run_sync(row.entry.path.read_bytes)
    return Response(content, media_type="application/json", headers=headers)


async def _find(request: Request, number: int) -> ReceiptRow:
    found = await to_thread.run_sync(request.app.state.pages.receipts.wait)
    row: ReceiptRow | None = None if found is None else found.find(number)
    if row is None:
        raise HTTPException(404, "There is no such receipt.")
    return row
