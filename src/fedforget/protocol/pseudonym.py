"""Pseudonym: a user's name where the id must not stand."""

from __future__ import annotations

import hashlib

from fedforget.runtime.randomness import UserId


def pseudonym(user: UserId, salt: str) -> str:
    """A user's name in a receipt or an order to wipe: whoever knows id and salt can check it, nobody else learns it."""
    kind = "s" if isinstance(user, str) else "i"
    return hashlib.blake2b(f"{kind}:{user}".encode(), key=bytes.fromhex(salt), digest_size=16).hexdigest()
