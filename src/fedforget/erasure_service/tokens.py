"""TokenStore: who may call the service, by bearer tokens.

    token(id TEXT PRIMARY KEY, digest BLOB, name TEXT, role TEXT, created TEXT, expires TEXT, revoked TEXT)
    token_holder(successor TEXT PRIMARY KEY, holder TEXT)       tokens that replace others, and whose holder they have

A token reads ``ff_<id>_<secret>``. The id finds its row; of the secret only the SHA-256 is stored. A slow hash such as
scrypt protects secrets that can be guessed. This one has 256 random bits, more than anybody can try, so a fast hash
gives nothing away, and checking a token costs microseconds. Times are ISO 8601 in UTC; those that are NULL never come.

A holder is named by the id of its first token. A token that replaces another one has the same holder.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
import string
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from threading import Lock
from typing import Any

from fedforget.errors import ConfigError
from fedforget.runtime.database import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS token (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL, created TEXT NOT NULL,
    expires TEXT, revoked TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS token_holder (successor TEXT PRIMARY KEY, holder TEXT NOT NULL) WITHOUT ROWID;
"""
ALPHABET = string.digits + string.ascii_letters
#: 43 characters of 62 carry 256 bits.
ID_LENGTH, SECRET_LENGTH = 8, 43
LONGEST_NAME = 64
_TOKEN = re.compile(f"ff_([0-9A-Za-z]{{{ID_LENGTH}}})_([0-9A-Za-z]{{{SECRET_LENGTH}}})")
#: Compared with when there is no such token. Random, so that no secret has it.
_DUMMY = secrets.token_bytes(32)
_COLUMNS = "id, name, role, created, expires, revoked, coalesce(holder, id)"
_TOKENS = "token LEFT JOIN token_holder ON successor = id"


class Role(StrEnum):
    """What a token is for."""

    REQUESTER = "requester"
    OPERATOR = "operator"
    AUDITOR = "auditor"


@dataclass(frozen=True)
class Holder:
    """Who calls, by a valid token: ``id`` stays the same when a token is replaced; ``token`` is the token's own."""

    id: str
    name: str
    role: Role
    token: str


@dataclass(frozen=True)
class TokenRecord:
    """What is known about a token, without its secret."""

    id: str
    name: str
    role: Role
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    holder: str

    def valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class TokenStore:
    """The tokens of a service. Changes by other processes count at once, since every check reads the database.

    Threads may share a store, but not its connection with transactions of anything else.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lock = Lock()

    def add(
        self,
        name: str,
        role: Role,
        expires: datetime | None = None,
        now: datetime | None = None,
        *,
        replaces: str | None = None,
    ) -> str:
        """Create a token and return it: it is not stored and cannot be shown again.

        It has the holder of the token with the id ``replaces``, which remains valid until it is revoked or expires.
        """
        now = _utc(now or datetime.now(UTC))
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise ConfigError(
                f"{name!r} is not a name for a token: it is empty, longer than {LONGEST_NAME} characters, begins or "
                "ends with a space, or has characters that cannot be shown.",
                "Name who uses it, such as ticket-system.",
            )
        if expires is not None and _utc(expires) <= now:
            raise ConfigError(f"A token cannot expire at {expires}: that is past.", "Give a later time.")
        holder = None if replaces is None else self._replaced(replaces, role)
        id_, secret = _random(ID_LENGTH), _random(SECRET_LENGTH)
        row = (id_, _digest(secret), name, Role(role), now.isoformat(), expires and _utc(expires).isoformat())
        with self._lock, transaction(self._db):
            self._db.execute("INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
            if holder is not None:
                self._db.execute("INSERT INTO token_holder VALUES (?, ?)", (id_, holder))
        return f"ff_{id_}_{secret}"

    def check(self, token: str, now: datetime) -> Holder | None:
        """The holder of a token that is valid now, else None. The time it takes tells nothing about stored tokens."""
        found = _TOKEN.fullmatch(token)
        id_, secret = found.groups() if found else ("", "")
        row = self._find(f"digest, {_COLUMNS}", id_)
        same = hmac.compare_digest(_digest(secret), row[0] if row else _DUMMY)
        return _holder(_record(row[1:]), now) if row and same else None

    def holder(self, id_: str, now: datetime) -> Holder | None:
        """The holder of a token by the token's id, if it is still valid: for sessions that began with it."""
        row = self._find(_COLUMNS, id_)
        return _holder(_record(row), now) if row else None

    def revoke(self, id_: str, now: datetime | None = None) -> None:
        """Make a token invalid from now on. Revoking it again changes nothing."""
        at = _utc(now or datetime.now(UTC)).isoformat()
        with self._lock, transaction(self._db):
            done = self._db.execute("UPDATE token SET revoked = coalesce(revoked, ?) WHERE id = ?", (at, id_))
        if not done.rowcount:
            raise _unknown(id_)

    def all(self) -> list[TokenRecord]:
        """All tokens, the oldest first."""
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM {_TOKENS} ORDER BY created, id").fetchall()
        return [_record(row) for row in rows]

    def name_of(self, holder: str) -> str:
        """The name of a holder's newest token; '' if it has none."""
        return next((record.name for record in reversed(self.all()) if record.holder == holder), "")

    def valid(self, now: datetime) -> int:
        """How many tokens are neither revoked nor expired."""
        return sum(record.valid(now) for record in self.all())

    def _replaced(self, id_: str, role: Role) -> str:
        """The holder of a token that may be replaced by one with this role."""
        row = self._find(_COLUMNS, id_)
        if row is None:
            raise _unknown(id_)
        record = _record(row)
        if record.role != role:
            raise ConfigError(f"The token {id_} has the role {record.role}, not {role}.", f"Give --role {record.role}.")
        return record.holder

    def _find(self, columns: str, id_: str) -> tuple[Any, ...] | None:
        with self._lock:
            row: tuple[Any, ...] | None = self._db.execute(
                f"SELECT {columns} FROM {_TOKENS} WHERE id = ?", (id_,)
            ).fetchone()
        return row


def _holder(record: TokenRecord, now: datetime) -> Holder | None:
    return Holder(record.holder, record.name, record.role, record.id) if record.valid(_utc(now)) else None


def _record(row: tuple[Any, ...]) -> TokenRecord:
    id_, name, role, *times, holder = row
    created, expires, revoked = (time and datetime.fromisoformat(time) for time in times)
    return TokenRecord(id_, name, Role(role), created, expires, revoked, holder)


def _unknown(id_: str) -> ConfigError:
    return ConfigError(f"There is no token with the id {id_!r}.", "List them: fedforget token list RUN")


def _utc(time: datetime) -> datetime:
    """The same moment in UTC, so that stored times can be ordered as text."""
    if time.tzinfo is None:
        raise ConfigError(f"The time {time} has no time zone.", "Give it in UTC.")
    return time.astimezone(UTC)


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
