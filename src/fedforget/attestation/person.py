"""Person: somebody whose data an erasure removed, as a signed receipt names them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedforget.errors import ConfigError
from fedforget.protocol.pseudonym import pseudonym, request_salt
from fedforget.runtime.ids import UserId
from fedforget.server.receipt import Receipt

PSEUDONYM = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, order=True)
class Person:
    """A pseudonym, and the number of items asked for of a person who stays; None if the whole person is forgotten."""

    pseudonym: str
    items_requested: int | None = None

    def __post_init__(self) -> None:
        if not PSEUDONYM.fullmatch(self.pseudonym):
            raise ConfigError(f"{self.pseudonym!r} is not a pseudonym.", "Give 32 hexadecimal digits.")

    @classmethod
    def of(cls, user: UserId, request: str, items_requested: int | None = None) -> Person:
        """The person who asked by a request of their own, a UUID."""
        return cls(pseudonym(user, request_salt(request)), items_requested)

    def to_dict(self) -> dict[str, Any]:
        return {"pseudonym": self.pseudonym} | (
            {} if self.items_requested is None else {"items_requested": self.items_requested}
        )


def in_order(persons: Iterable[Person]) -> list[Person]:
    """The persons in the order of statements, which does not tell who asked first."""
    return sorted(persons, key=lambda person: person.pseudonym)


def persons_of(receipt: Receipt) -> list[Person]:
    """The persons of a receipt by the names in it, which all have the salt of the erasure."""
    parts = [Person(name, count) for name, count in receipt.partial.items()]
    return [*(Person(name) for name in receipt.users), *parts]
