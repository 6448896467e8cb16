"""Pseudonym: a salted hash of a user id."""

from __future__ import annotations

import hashlib
import uuid

from fedforget.errors import ConfigError
from fedforget.runtime.ids import UserId


def pseudonym(user: UserId, salt: str) -> str:
    """The salted hash that stands for a user in receipts and wipe orders; checking it needs the id and the salt."""
    kind = "s" if isinstance(user, str) else "i"
    return hashlib.blake2b(f"{kind}:{user}".encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()


def request_salt(request: str) -> str:
    """The salt of the pseudonyms of a request over HTTP: its UUID, without dashes; also of the salt of ``forget``."""
    try:
        return uuid.UUID(request).hex
    except ValueError as error:
        raise ConfigError(
            f"The request id {request!r} is not a UUID.", "Give the subject_request_id of the request."
        ) from error
