"""Errors of pages, as pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from fedforget.erasure_service.page.rendering import render
from fedforget.erasure_service.page.visitors import FRAGMENTS, visitor_of

#: Paths that programs call.
APIS = ("/opendsr", "/v1/", "/metrics", "/openapi.json", "/static/")


def wants_page(request: Request) -> bool:
    """Whether a browser made a call and shows the answer to a person."""
    return not request.url.path.startswith(APIS) and "text/html" in request.headers.get("accept", "")


def error_page(
    request: Request, code: int, detail: str, errors: Sequence[tuple[str, str]], headers: Mapping[str, str] | None
) -> Response:
    """An error as a page; who is signed out is asked to sign in."""
    path = request.url.path
    if code == HTTPStatus.UNAUTHORIZED and request.method == "GET" and not path.startswith(FRAGMENTS):
        return RedirectResponse(f"/sign-in?next={quote(path)}", 303)
    known = visitor_of(request) if code < HTTPStatus.INTERNAL_SERVER_ERROR else None
    title = HTTPStatus(code).phrase
    answer = render(request, "error.html", known, code, title=title, code=code, detail=detail, errors=errors)
    answer.headers.update(headers or {})
    return answer
