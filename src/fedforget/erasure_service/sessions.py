"""Sessions: who is signed in to the page. They are kept in memory only, so a restart signs everybody out."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock

from fedforget.erasure_service.tokens import Holder, TokenStore

LIFETIME, IDLE = timedelta(hours=12), timedelta(hours=1)
MOST_SESSIONS, MOST_PER_HOLDER = 1000, 20


@dataclass(frozen=True)
class Session:
    """A signed-in browser. ``id`` is the value of its cookie, ``csrf`` must come with every change that it asks for."""

    id: str = field(repr=False)
    csrf: str = field(repr=False)
    holder: Holder
    created: datetime
    expires: datetime
    used: datetime

    def csrf_matches(self, sent: str) -> bool:
        """Whether a form or header has this session's CSRF token, in constant time."""
        return hmac.compare_digest(self.csrf.encode(), sent.encode(errors="replace"))


class Sessions:
    """The sessions of a service, with a bounded number in all and per holder: the one used longest ago is ended.

    A session is found by the hash of its id, so the time of a lookup tells nothing about the ids of others. It is as
    valid as the token that it began with, which is looked up at every use.
    """

    def __init__(
        self,
        tokens: TokenStore,
        *,
        lifetime: timedelta = LIFETIME,
        idle: timedelta = IDLE,
        most: int = MOST_SESSIONS,
        most_per_holder: int = MOST_PER_HOLDER,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._tokens = tokens
        self._lifetime = lifetime
        self._idle = idle
        self._most = most
        self._most_per_holder = most_per_holder
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._lock = Lock()

    def start(self, holder: Holder) -> Session:
        """Sign a holder in. Always use the new id, never one that the browser already had."""
        now = self._clock()
        id_, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        session = Session(id_, csrf, holder, now, now + self._lifetime, now)
        with self._lock:
            own = [key for key, other in self._sessions.items() if other.holder.id == holder.id]
            for key in own[: max(0, len(own) + 1 - self._most_per_holder)]:
                del self._sessions[key]
            self._sessions[_key(id_)] = session
            if len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        return session

    def find(self, id_: str, *, counts: bool = True) -> Session | None:
        """The session with this id; None if it has ended or its token is not valid now.

        It counts as a use of the session, unless a script asks by itself and not for the person.
        """
        key, now = _key(id_), self._clock()
        with self._lock:
            session = self._sessions.pop(key, None)
            if session is None or now >= session.expires or now - session.used >= self._idle:
                return None
            holder = self._tokens.holder(session.holder.token, now)
            if holder is None:
                return None
            session = self._sessions[key] = replace(session, holder=holder, used=now if counts else session.used)
            return session

    def end(self, id_: str) -> None:
        """Sign out."""
        with self._lock:
            self._sessions.pop(_key(id_), None)

    def __len__(self) -> int:
        return len(self._sessions)


def _key(id_: str) -> bytes:
    return hashlib.sha256(id_.encode(errors="replace")).digest()
