"""Values in Flower's records, checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from flwr.app import ConfigRecord

from fedforget.flower.arrays import MessageError
from fedforget.runtime.randomness import UserId

A = TypeVar("A")
B = TypeVar("B")
CONTRADICTION = "the message contradicts itself"
LONGEST_VALUE = 200


def read_record(records: Mapping[str, A], name: str) -> A:
    """One of the records of a message."""
    if name not in records:
        raise MessageError(f"the message has no {name}")
    return records[name]


def read_value(record: ConfigRecord, name: str, kind: type) -> Any:
    """One value of a record, which must have this type."""
    value = record.get(name)
    if type(value) is not kind:
        raise MessageError(f"its {name} is {_shown(value)}")
    return value


def read_list(record: ConfigRecord, name: str, kind: type) -> list[Any]:
    """A list of a record, whose values must have this type."""
    values = record.get(name)
    if not isinstance(values, list) or any(type(value) is not kind for value in values):
        raise MessageError(f"its {name} is {_shown(values)}")
    return values


def read_ids(record: ConfigRecord, name: str) -> list[UserId]:
    """A list of user or item ids: all numbers or all strings."""
    values = record.get(name)
    kind = str if isinstance(values, list) and values and isinstance(values[0], str) else int
    return read_list(record, name, kind)


def _shown(value: object) -> str:
    """A value of the wrong type, in words that go into logs: texts and lists may be ids, which are not shown."""
    return repr(value) if isinstance(value, bool | float | None) else f"of type {type(value).__name__}"


def pairs(first: Sequence[A], second: Sequence[B]) -> list[tuple[A, B]]:
    """Two lists side by side, which must have the same length."""
    if len(first) != len(second):
        raise MessageError(CONTRADICTION)
    return list(zip(first, second, strict=True))


def split_bytes(joined: bytes, size: int) -> list[bytes]:
    """Byte strings of one size that were joined."""
    if len(joined) % size:
        raise MessageError(CONTRADICTION)
    return [joined[place : place + size] for place in range(0, len(joined), size)]
