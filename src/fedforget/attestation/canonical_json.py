"""JSON in one form: the same values give the same bytes, and what has no single meaning is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def canonical(value: Any) -> bytes:
    """The bytes of a value: names sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_object(data: bytes | str) -> dict[str, Any]:
    """The values of a JSON object; ``ValueError`` if it is anything else, or names a field twice."""
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("it names a field twice")
    return values


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")
