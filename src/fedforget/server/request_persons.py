"""RequestPersons: who of the persons of a request the caller has named, proved by the pseudonyms in its receipt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedforget.errors import ConfigError
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.ids import UserId
from fedforget.server.coordinator import Coordinator
from fedforget.server.receipt import Receipt
from fedforget.server.service import Service

#: Persons by pseudonym, with the number of forgotten interactions of those who stay; None for whole persons.
Names = Mapping[str, int | None]


@dataclass(frozen=True)
class RequestPersons:
    """The users of a request that the caller named.

    ``users`` were forgotten and are no members; ``again`` are members again since a round; ``partial`` stay, with the
    number of their forgotten interactions. ``checked`` of the ``total`` persons of the request are recognised by the
    ``salts``; these are all only if both the receipt and the signed one have no others. ``names`` are the pseudonyms of
    all.
    """

    names: Names
    salts: Sequence[str] = ()
    users: Sequence[UserId] = ()
    again: Mapping[UserId, int] = field(default_factory=dict)
    partial: Mapping[UserId, int] = field(default_factory=dict)
    checked: int = 0
    total: int = 0
    _forgotten: dict[UserId, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, fed: Coordinator, receipt: Receipt, signed: Names, users: Sequence[UserId], salts: Sequence[str]
    ) -> RequestPersons:
        """Compare users with the pseudonyms in a receipt, and in the signed one, where each person has an own salt.

        Users and salts that are not those of the request are refused: a search for others would prove nothing.
        """
        own: Names = {**dict.fromkeys(receipt.users), **receipt.partial}
        everybody = cls({**own, **signed}, [salt_of(salt) for salt in salts], total=len(own))
        named = everybody._named(users)
        _check(fed, receipt, everybody, users, named)
        named = everybody._named([*users, *fed.members])
        checked, total = _counted(receipt, signed, named)
        again = _members_again(fed, list(named) if salts else users)
        counts = {user: _count(everybody.names, names) for user, names in named.items()}
        members = set(fed.history.membership.users())
        partial = {user: count for user, count in counts.items() if count is not None and user in members}
        gone = list(named) if salts else fed.history.membership.suppressed(users)
        gone = [user for user in gone if user not in again and user not in partial]
        again = {user: since for user, since in again.items() if user in named and user not in partial}
        return cls(everybody.names, everybody.salts, gone, again, partial, checked, total)

    @property
    def whole(self) -> bool:
        """Whether the request forgot any person as a whole."""
        return any(count is None for count in self.names.values())

    def names_of(self, user: UserId) -> set[str]:
        """The pseudonyms of the request that stand for a user; the ids of a request over HTTP are text."""
        forms = {user, str(user)}
        return {name for salt in self.salts for form in forms if (name := pseudonym(form, salt)) in self.names}

    def forgotten(self, user: UserId, round_: int | None = None) -> bool:
        """Whether the history must not have a user, in a round."""
        if user in self.again:
            return round_ is not None and round_ < self.again[user]
        if user not in self._forgotten:
            by_name = any(self.names[name] is None for name in self.names_of(user))
            self._forgotten[user] = user not in self.partial and (user in self.users or by_name)
        return self._forgotten[user]

    def _named(self, users: Iterable[UserId]) -> dict[UserId, set[str]]:
        named = {user: self.names_of(user) for user in dict.fromkeys(users)}
        return {user: names for user, names in named.items() if names}


def salt_of(text: str) -> str:
    """A salt as ``forget`` shows it, or the UUID of a request, which is its salt, with or without dashes."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
        if not 0 < len(raw) <= 64:
            raise ValueError("it has no digits, or too many")
    except ValueError as error:
        raise ConfigError(
            f"The salt {text!r} is invalid: {error}.", "Give the salt that forget printed, or the UUID of the request."
        ) from error
    return raw.hex()


def _check(
    fed: Coordinator,
    receipt: Receipt,
    persons: RequestPersons,
    users: Sequence[UserId],
    named: Mapping[UserId, set[str]],
) -> None:
    """Refuse users who are not of the request, and salts that name none of the given users."""
    hint = "Check the ids and the salt. Requests to the erasure service are named in the signed receipt only."
    known: set[UserId] = set(named)
    if not persons.salts:
        known = {*fed.history.membership.suppressed(users), *(fed.members if receipt.partial else ())}
    if other := [user for user in users if user not in known]:
        raise ConfigError(f"User {other[0]!r} is not recognised in the receipt of request {receipt.request}.", hint)
    found = {name for names in named.values() for name in names}
    for salt in persons.salts if users else ():
        if not any(pseudonym(form, salt) in found for user in users for form in (user, str(user))):
            raise ConfigError(f"None of the users has a pseudonym with the salt {salt!r} in the receipt.", hint)


def _counted(receipt: Receipt, signed: Names, named: Mapping[UserId, set[str]]) -> tuple[int, int]:
    """The number of persons that are recognised, and of all.

    A person may have a name in each receipt, and a signed name may be of nobody. On a network one erasure also carries
    out requests for items that came from devices: their persons have no signed name.
    """
    found = {name for names in named.values() for name in names}
    if {*receipt.users, *receipt.partial} <= found:
        return len(named), len(named)
    whole = {*receipt.users, *(name for name, count in signed.items() if count is None)}
    wholes = sum(not names.isdisjoint(whole) for names in named.values())
    parts = sum(not names <= whole for names in named.values())
    missing = max(len(receipt.users) - wholes, 0) + max(len(receipt.partial) - parts, 0)
    return len(named), len(named) + max(missing, len(signed.keys() - found))


def _members_again(fed: Coordinator, users: Sequence[UserId]) -> dict[UserId, int]:
    """The users who were admitted again after they were forgotten, with the round since when they are members."""
    membership = fed.history.membership
    left = {*membership.suppressed(users)}
    members, joined = set(membership.users()), membership.joined()
    again = {user: joined.get(user, 0) for user in users if user in members and user not in left}
    readmitted = fed.registry.readmitted() if isinstance(fed, Service) else set()
    return again | {user: fed.rounds + 1 for user in users if user in readmitted}


def _count(names: Names, found: Iterable[str]) -> int | None:
    """The number of forgotten interactions of a user who stays; None for a whole user."""
    counts = [count for name in found if (count := names[name]) is not None]
    return max(counts, default=None)
