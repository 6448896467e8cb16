"""Visitor: who looks at a page, by the session in a cookie; and the checks of a posted form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedforget.erasure_service.page.forms import read_form
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.sessions import Session
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.tokens import Holder, Role

#: The field of every form that only our own pages know.
CSRF = "csrf"
#: Where the parts of pages are that the script asks for every few seconds.
FRAGMENTS = "/fragments/"


@dataclass(frozen=True)
class Visitor:
    """A holder of a token who has signed in."""

    session: Session

    @property
    def holder(self) -> Holder:
        return self.session.holder

    @property
    def csrf(self) -> str:
        """What the forms of this session carry."""
        return self.session.csrf

    @property
    def operates(self) -> bool:
        """Whether they may approve, cancel and start."""
        return self.holder.role == Role.OPERATOR

    @property
    def asks(self) -> bool:
        """Whether they may ask for erasures."""
        return self.holder.role in (Role.OPERATOR, Role.REQUESTER)

    @property
    def looks(self) -> bool:
        """Whether they see the requests of everybody, the federation and the receipts."""
        return self.holder.role in (Role.OPERATOR, Role.AUDITOR)


def service_of(request: Request) -> ErasureService:
    """The service that answers a call."""
    service: ErasureService = request.app.state.service
    return service


def visitor_of(request: Request) -> Visitor | None:
    """Who makes a call; None without a valid session. The calls of the script do not keep a session alive."""
    service = service_of(request)
    session = service.sessions.find(session_id(request), counts=not request.url.path.startswith(FRAGMENTS))
    return None if session is None else Visitor(session)


def session_id(request: Request) -> str:
    """The id of the browser's session; '' if it has none."""
    return request.cookies.get(cookie_name(service_of(request).settings), "")


def visitor(*roles: Role) -> Callable[[Request], Awaitable[Visitor]]:
    """A dependency: the visitor of a page, who must have one of these roles; any without."""

    async def check(request: Request) -> Visitor:
        found = visitor_of(request)
        if found is None:
            raise HTTPException(401, "You are signed out.")
        request.state.holder = found.holder
        service_of(request).access.count(found.holder)
        if roles and found.holder.role not in roles:
            needed = " or ".join(roles)
            raise HTTPException(403, f"Your token has the role {found.holder.role}; this needs {needed}.")
        return found

    return check


def posted(*roles: Role) -> Callable[[Request], Awaitable[dict[str, str]]]:
    """A dependency: the fields of a form that a visitor with one of these roles posted from one of our pages."""
    check = visitor(*roles)

    async def read(request: Request) -> dict[str, str]:
        check_same_site(request)
        found = await check(request)
        fields = await read_form(request)
        if not found.session.csrf_matches(fields.get(CSRF, "")):
            raise HTTPException(403, "The form is not from a page of your session. Load the page again.")
        request.state.visitor = found
        return fields

    return read


def check_same_site(request: Request) -> None:
    """Refuse a form that was posted from a page of another site.

    Our pages send no referrer, so some browsers send "null" as the origin of their forms.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
    if site is not None:
        same = site in ("same-origin", "none")
    else:
        same = origin == "null" or urlsplit(origin).netloc == request.headers.get("host")
    if not same:
        raise HTTPException(403, "The form was posted from another site.")


def cookie_name(settings: ServiceSettings) -> str:
    """The name of the session's cookie. It has the port, since cookies of a host are sent to all its ports."""
    return f"{'__Host-' if is_secure(settings) else ''}fedforget-{settings.port}"


def is_secure(settings: ServiceSettings) -> bool:
    """Whether browsers reach the service by TLS."""
    return settings.is_tls or settings.behind_proxy


def set_session(response: Response, settings: ServiceSettings, session: str) -> None:
    """Have the browser keep a session until it is closed."""
    name = cookie_name(settings)
    response.set_cookie(name, session, path="/", secure=is_secure(settings), httponly=True, samesite="strict")


def drop_session(response: Response, settings: ServiceSettings) -> None:
    """Have the browser remove its session."""
    response.delete_cookie(
        cookie_name(settings), path="/", secure=is_secure(settings), httponly=True, samesite="strict"
    )


#: Anybody who has signed in; who sees everything; who may ask for erasures.
Anyone = Annotated[Visitor, Depends(visitor())]
Looker = Annotated[Visitor, Depends(visitor(Role.OPERATOR, Role.AUDITOR))]
Asked = Annotated[dict[str, str], Depends(posted(Role.OPERATOR, Role.REQUESTER))]
Operated = Annotated[dict[str, str], Depends(posted(Role.OPERATOR))]
Posted = Annotated[dict[str, str], Depends(posted())]
