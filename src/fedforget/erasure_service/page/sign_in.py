"""Signing in and out: a token becomes a session in a cookie."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from fedforget.erasure_service.access import address_of
from fedforget.erasure_service.page.forms import read_form
from fedforget.erasure_service.page.rendering import render
from fedforget.erasure_service.page.visitors import (
    Posted,
    check_same_site,
    drop_session,
    service_of,
    session_id,
    set_session,
    visitor_of,
)

router = APIRouter(include_in_schema=False)
#: Pages to go on to after signing in.
OURS = re.compile(r"/(?:docs|receipts(?:/[0-9]{1,9})?|requests(?:/[0-9a-f-]{16,36})?)?")


@router.get("/sign-in")
async def sign_in_page(request: Request, next: str = "/") -> Response:
    """The form to sign in with a token."""
    if visitor_of(request) is not None:
        return RedirectResponse(_ours(next), 303)
    return _form(request, next)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session with the token of the form."""
    check_same_site(request)
    service, fields = service_of(request), await read_form(request)
    onward, token = fields.get("next", "/"), fields.get("token", "").strip()
    if not token:
        return _form(request, onward, "Enter a token.", 400)
    try:
        holder = service.access.holder(token, address_of(request))
    except HTTPException as error:
        wait = (error.headers or {}).get("Retry-After")
        hint = f" Try again in {wait} seconds." if wait else ""
        answer = _form(request, onward, f"{error.detail}{hint}", error.status_code)
        answer.headers.update(error.headers or {})
        return answer
    request.state.holder = holder
    service.sessions.end(session_id(request))
    response = RedirectResponse(_ours(onward), 303)
    set_session(response, service.settings, service.sessions.start(holder).id)
    return response


@router.post("/sign-out")
async def sign_out(request: Request, fields: Posted) -> Response:
    """End the session."""
    service_of(request).sessions.end(session_id(request))
    response = RedirectResponse("/sign-in?signed_out=1", 303)
    drop_session(response, service_of(request).settings)
    return response


def _form(request: Request, onward: str, error: str = "", code: int = 200) -> Response:
    out = "signed_out" in request.query_params
    return render(request, "sign_in.html", None, code, next=_ours(onward), error=error, signed_out=out)


def _ours(path: str) -> str:
    """A page of ours; the first one for anything else."""
    return path if OURS.fullmatch(path) else "/"
