"""JSON files with a digest, so that damage is noticed. Those of earlier versions have none and are not checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def to_checked_json(values: Mapping[str, Any]) -> bytes:
    """The content of a file."""
    return json.dumps({**values, "check": _digest(values)}).encode()


def from_checked_json(content: bytes) -> dict[str, Any]:
    """The values in a file; ``ValueError`` if it is damaged."""
    values = json.loads(content.decode("utf-8"))
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    check = values.pop("check", None)
    if check is not None and check != _digest(values):
        raise ValueError("its content does not match its digest")
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()
