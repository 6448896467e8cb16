"""ErasureRequest: a request to forget users, stored in the run folder until it is carried out."""

from __future__ import annotations

import json
import numbers
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedforget.errors import ConfigError, RunError
from fedforget.runtime.checked_json import from_checked_json, to_checked_json
from fedforget.runtime.files import refused, write_file
from fedforget.runtime.ids import ItemId, UserId

#: Items that users are to be forgotten for.
ItemsOf = Mapping[UserId, Sequence[ItemId]]


@dataclass(frozen=True)
class PartialErasure:
    """Interactions to forget of a user who stays: how many, and the round from which they counted in training.

    ``since`` is None if they were only for testing. The ``items`` are known in a simulation; on a network ``number`` is
    that of the request on the user's device.
    """

    user: UserId
    count: int
    since: int | None
    items: tuple[ItemId, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class ErasureRequest:
    """Users to forget, the unlearning method, and ``require``, the minimum fraction of updates that must arrive.

    ``trajectory`` is the number of the new trajectory, once it is begun. ``partial`` are interactions to forget of
    users who stay.
    """

    id: str
    users: tuple[UserId, ...]
    method: dict[str, Any]
    salt: str
    trajectory: int = 0
    require: float = 0.0
    partial: tuple[PartialErasure, ...] = ()

    @classmethod
    def new(
        cls,
        users: Sequence[UserId],
        method: dict[str, Any],
        require: float = 0.0,
        partial: Sequence[PartialErasure] = (),
    ) -> ErasureRequest:
        """A request with a new id and salt."""
        salt = secrets.token_hex(16)
        return cls(secrets.token_hex(8), tuple(users), method, salt, require=require, partial=tuple(partial))

    @property
    def items_of(self) -> dict[UserId, list[ItemId]]:
        """The items to forget of users who stay, where they are known."""
        return {part.user: list(part.items) for part in self.partial if part.items}

    def among(self, members: Collection[UserId]) -> ErasureRequest:
        """The request without users who are not members, and without items of users who are forgotten as a whole."""
        users = tuple(dict.fromkeys(user for user in self.users if user in members))
        partial = tuple(part for part in self.partial if part.user in members and part.user not in users)
        return replace(self, users=users, partial=partial)

    def asks_for(self, users: Sequence[UserId], method: dict[str, Any], partial: Sequence[PartialErasure] = ()) -> bool:
        """Whether it is for the same users and interactions by the same method."""
        stored, wanted = (
            {part.user: (part.number, frozenset(part.items)) for part in parts} for parts in (self.partial, partial)
        )
        return (set(self.users), stored) == (set(users), wanted) and self.method == json.loads(json.dumps(method))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ErasureRequest:
        """From plain values, as of ``asdict``."""
        partial = tuple(PartialErasure(**{**part, "items": tuple(part["items"])}) for part in values.get("partial", ()))
        lists = {"users": tuple(values["users"]), "method": dict(values["method"]), "partial": partial}
        return cls(**{**values, **lists})

    def save(self, path: Path) -> None:
        """Write a JSON file, with a digest: damage must not change who is forgotten."""
        write_file(path, to_checked_json(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> ErasureRequest | None:
        """Read from a JSON file; None if there is none."""
        if not path.exists():
            return None
        try:
            return cls.from_dict(from_checked_json(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise refused(path, error) or RunError(
                f"{path} cannot be read: {error}.", "Remove it and ask again; the old model is still in service."
            ) from error


def checked_users(users: object, members: Sequence[UserId]) -> list[UserId]:
    """The users of a request without duplicates; an error if one is not a member or no member would remain."""
    if isinstance(users, str | bytes) or not isinstance(users, Iterable) or not (given := list(users)):
        raise ConfigError(f"The request names {users!r}.", "Give a list with at least one user id.")
    forgotten = list(dict.fromkeys(_user_id(user) for user in given))
    known = set(members)
    if unknown := [user for user in forgotten if user not in known]:
        shown = ", ".join(repr(user) for user in unknown[:5])
        first = ", ".join(repr(user) for user in members[:3])
        raise ConfigError(
            f"There is no user {shown} in this federation{' (and more)' if len(unknown) > 5 else ''}.",
            f"Its {len(known):,} user ids start with {first}. Forgotten users are no longer in it.",
        )
    if len(forgotten) == len(known):
        raise ConfigError(f"All {len(known):,} users are to be forgotten.", "Delete the run folder instead.")
    return forgotten


def _user_id(user: object) -> UserId:
    if isinstance(user, str):
        return str(user)
    if isinstance(user, numbers.Integral) and not isinstance(user, bool):
        return int(user)
    raise ConfigError(f"{user!r} cannot be a user id.", "Ids are whole numbers or strings, as in the data.")
