"""Errors as answers: problem details (RFC 9457), or the standard's form below ``/opendsr``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from fedforget.erasure_service import opendsr
from fedforget.erasure_service.page.errors import error_page, wants_page
from fedforget.erasure_service.subject_requests import ConflictError

PROBLEM = "application/problem+json"


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] = []


def documented(*codes: int, standard: bool = False) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the API's description."""
    common = (400, 401, 403, 408, 413, 429)
    if standard:
        return {code: {"model": opendsr.ErrorBody} for code in (*common, *codes)}
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"description": HTTPStatus(code).phrase, "content": content} for code in (*common, *codes)}


def answer(
    request: Request,
    code: int,
    detail: str,
    errors: Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error in the form of the API that was called, or as a page."""
    if wants_page(request):
        return error_page(request, code, detail, errors, headers or {})
    if request.url.path.startswith("/opendsr"):
        return JSONResponse(opendsr.error_body(code, detail, list(errors) or None), code, headers)
    problem = Problem(
        title=HTTPStatus(code).phrase, status=code, detail=detail, errors=[{"field": f, "reason": r} for f, r in errors]
    )
    return JSONResponse(problem.model_dump(), code, headers, media_type=PROBLEM)


def add_handlers(app: FastAPI) -> None:
    """Answer every error in the form of the API that was called."""

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return answer(request, error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = [(_place(one["loc"]), str(one["msg"])) for one in error.errors()]
        first = f"{found[0][0]}: {found[0][1]}" if found else "invalid"
        return answer(request, 400, f"The request is not valid: {first}.", found)

    @app.exception_handler(ConflictError)
    async def conflict(request: Request, error: ConflictError) -> Response:
        return answer(request, 409, f"{error.problem} {error.hint}")

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return answer(request, 500, "Something went wrong in the service; its log has the reason.")


def _place(path: Sequence[Any]) -> str:
    """The place of an error in the body or the query."""
    return ".".join(str(part) for part in path if part not in ("body", "query", "path")) or "body"
