"""Access: who may make a call, by bearer tokens with roles, and how many calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import ceil
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from fedforget.erasure_service.rates import Failures, Rates
from fedforget.erasure_service.tokens import Holder, Role, TokenStore

bearer = HTTPBearer(auto_error=False, description="A token, made by `fedforget token add`.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
#: Burst of calls, in seconds of the allowed rate.
BURST_SECONDS = 2.0
ASK_FOR_TOKEN = "Ask the person who runs this service for a token."


class Access:
    """Checks tokens and counts calls."""

    def __init__(self, tokens: TokenStore, rate: float) -> None:
        self.tokens = tokens
        self.rates = Rates(rate, max(1, round(BURST_SECONDS * rate)))
        self.failures = Failures()

    def holder(self, token: str, address: str) -> Holder:
        """The holder of a token; an error if it is not valid, another one if the address has failed too often."""
        if (holder := self.tokens.check(token, datetime.now(UTC))) is not None:
            return holder
        if (wait := self.failures.wait(address)) > 0:
            raise _later("Too many failed attempts from this address.", wait)
        self.failures.add(address)
        raise _unauthorized("The token is not valid. Check that all of it was copied.")

    def count(self, holder: Holder) -> None:
        """Count a call; an error if there are too many."""
        if (wait := self.rates.take(holder.token)) > 0:
            raise _later("Too many calls with this token.", wait)


def require(*roles: Role) -> Callable[[Request, Credentials], Awaitable[Holder]]:
    """A dependency: the holder of the call's token, who must have one of these roles."""

    async def check(request: Request, credentials: Credentials) -> Holder:
        access: Access = request.app.state.service.access
        if credentials is None:
            raise _unauthorized("A bearer token is needed.")
        holder = access.holder(credentials.credentials, address_of(request))
        request.state.holder = holder
        access.count(holder)
        if holder.role not in roles:
            named = " or ".join(roles)
            raise HTTPException(403, f"The token has the role {holder.role}; this needs {named}.")
        return holder

    return check


def address_of(request: Request) -> str:
    """The address of the client."""
    return request.client.host if request.client else ""


def _unauthorized(detail: str) -> HTTPException:
    return HTTPException(401, f"{detail} {ASK_FOR_TOKEN}", {"WWW-Authenticate": "Bearer"})


def _later(detail: str, seconds: float) -> HTTPException:
    return HTTPException(429, detail, {"Retry-After": str(ceil(seconds))})


#: Who may ask for erasures, who may run the service, and who may look.
Requester = Annotated[Holder, Depends(require(Role.REQUESTER, Role.OPERATOR))]
Operator = Annotated[Holder, Depends(require(Role.OPERATOR))]
Reader = Annotated[Holder, Depends(require(Role.OPERATOR, Role.AUDITOR))]
