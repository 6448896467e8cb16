"""Pseudonym: a salted hash of a user id."""

from __future__ import annotations

import hashlib

from fedforget.runtime.ids import UserId


def pseudonym(user: UserId, salt: str) -> str:
    """The salted hash that stands for a user in receipts and wipe orders; checking it needs the id and the salt."""
    kind = "s" if isinstance(user, str) else "i"
    return hashlib.blake2b(f"{kind}:{user}".encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()
