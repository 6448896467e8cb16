"""Order: what is sent to a device with every task: federation, trajectory, round and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedforget.protocol.factors import Factors
from fedforget.runtime.randomness import UserId

#: A trajectory and those before it, oldest first: the name of each, and the round of its predecessor after which it
#: branched off.
Lineage = tuple[tuple[str, int], ...]
#: The lineage of a federation that has not forgotten anyone.
ORIGIN: Lineage = (("origin", 0),)


@dataclass(frozen=True)
class Order:
    """Which federation, trajectory and round a task belongs to, and which users are asked.

    ``number`` grows with every order: one with a lower number than the last is out of date, one with the same number is
    a repetition. ``in_service`` is the trajectory in service: the last of ``lineage`` or, during an erasure, the one
    before it. ``since`` is the last round of each user that the server accepted on this trajectory, ``served`` that on
    the trajectory in service; the device undoes later rounds, since their updates arrived too late. ``factors`` are the
    factors of accepted rounds that the server calibrated, by trajectory and round. ``rounds`` are the past rounds that
    each user replays, in ascending order, and ``round`` is the first of all; if empty, each is asked for ``round``.
    """

    federation: str
    number: int
    lineage: Lineage
    in_service: str
    round: int
    users: tuple[UserId, ...]
    since: tuple[int, ...]
    served: tuple[int, ...]
    factors: Mapping[tuple[str, int], Factors] = field(default_factory=dict)
    rounds: tuple[tuple[int, ...], ...] = ()

    @property
    def asked(self) -> dict[int, list[UserId]]:
        """Who is asked for which round."""
        asked: dict[int, list[UserId]] = {}
        for user, rounds in zip(self.users, self.rounds or [(self.round,)] * len(self.users), strict=True):
            for round_ in rounds:
                asked.setdefault(round_, []).append(user)
        return dict(sorted(asked.items()))

    @property
    def trajectory(self) -> str:
        """The trajectory that the task is on."""
        return self.lineage[-1][0]
