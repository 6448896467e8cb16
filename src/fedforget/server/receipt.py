"""Receipt: the record of an erasure, which names users only by salted hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.ids import UserId

#: The fields of a public receipt.
PUBLIC = (
    "request",
    "users",
    "partial",
    "method",
    "digest_before",
    "digest_after",
    "finished",
    "version",
    "wiped",
    "to_wipe",
    "given_up",
)


@dataclass(frozen=True)
class Receipt:
    """One erasure: the request, how it was carried out, and the model before and after.

    ``rounds_replayed`` past rounds were replayed in ``communication_rounds`` rounds. ``asked`` and ``answered`` count
    updates, ``messages`` those sent to devices; with secure aggregation a second, small one follows each. ``chosen`` is
    the reason for the method. ``wiped`` is the number of devices that have confirmed that they removed what was
    forgotten, of ``to_wipe``; ``given_up`` were lost; None in a simulation. ``users`` are salted hashes; ``partial``
    has the number of forgotten interactions of users who stay, by salted hash. The ``salt`` is returned once, by
    ``forget``, and not stored, since ids could be guessed with it.
    """

    request: str
    users: Sequence[str]
    method: Mapping[str, Any]
    first_round: int | None
    rounds_replayed: int
    rounds_added: int
    asked: int
    answered: int
    missing: Mapping[str, int]
    bytes_down: int
    bytes_up: int
    seconds: float
    digest_before: str
    digest_after: str
    finished: str
    version: str
    wiped: int | None = None
    communication_rounds: int | None = None
    messages: int | None = None
    chosen: str = "as asked for"
    partial: Mapping[str, int] = field(default_factory=dict)
    to_wipe: int | None = None
    given_up: int = 0
    salt: str | None = field(default=None, repr=False)

    @property
    def devices(self) -> int:
        """The number of devices that must remove something: all that ever held a forgotten user."""
        return len(self.users) + len(self.partial) if self.to_wipe is None else self.to_wipe

    @property
    def coverage(self) -> float:
        """The fraction of the updates asked for that were received; 1 if none was asked for."""
        return self.answered / self.asked if self.asked else 1.0

    def names(self, user: UserId, salt: str | None = None) -> bool:
        """Whether a user is among the forgotten users; needs the salt unless the receipt has it."""
        salt = salt or self.salt
        if salt is None:
            raise ValueError("the salt is needed to recognise a user")
        return pseudonym(user, salt) in {*self.users, *self.partial}

    def to_dict(self) -> dict[str, Any]:
        """The receipt as stored: everything but the salt."""
        values = asdict(self)
        values.pop("salt")
        return {**values, "coverage": self.coverage}

    def to_public(self) -> dict[str, Any]:
        """The receipt without what depends on when single users took part, to hand out.

        With a list of candidates, the first round and the numbers of updates would narrow down who was forgotten.
        """
        return {name: value for name, value in self.to_dict().items() if name in PUBLIC}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        values = json.loads(text)
        values.pop("coverage", None)
        return cls(**values)

    def _forgotten(self) -> str:
        parts = [f"{len(self.users)} users"] if self.users or not self.partial else []
        if self.partial:
            parts.append(f"{sum(self.partial.values())} interactions of {len(self.partial)} users who stay")
        return " and ".join(parts)

    def __str__(self) -> str:
        more = f", {self.rounds_added} more trained" if self.rounds_added else ""
        steps = "" if self.communication_rounds is None else f", in {self.communication_rounds} communication rounds"
        messages = "" if self.messages is None else f"{self.messages:,} messages, "
        settings = ", ".join(f"{name} {value}" for name, value in self.method.items() if name != "name")
        since = "no round" if self.first_round is None else f"round {self.first_round}"
        lost = f", {self.given_up} were given up" if self.given_up else ""
        wiped = (
            "" if self.wiped is None else f"\n  wiped      {self.wiped} of {self.devices} devices have confirmed{lost}"
        )
        failed = "".join(f"\n             {count} × {reason}" for reason, count in self.missing.items())
        return (
            f"Receipt {self.request}\n"
            f"  forgotten  {self._forgotten()}, in the model since {since}\n"
            f"  method     {self.method['name']}" + (f" ({settings})" if settings else "") + "\n"
            f"             {self.chosen}\n"
            f"  replayed   {self.rounds_replayed} rounds{more}{steps}\n"
            f"  devices    {messages}{self.asked:,} updates asked for, {self.answered:,} received"
            f" ({self.coverage:.1%}){failed or ', failed: none'}{wiped}\n"
            f"  moved      {self.bytes_down / 1e6:,.1f} MB to devices, {self.bytes_up / 1e6:,.1f} MB back\n"
            f"  took       {self.seconds:.2f} s, finished {self.finished}\n"
            f"  model      {self.digest_before[:16]} → {self.digest_after[:16]}\n"
            f"  version    fedforget {self.version}"
        )
