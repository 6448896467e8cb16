"""Order: what is sent to a device with every task: federation, trajectory, round and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedforget.protocol.factors import Factors
from fedforget.runtime.randomness import ItemId, UserId

#: A trajectory and those before it, oldest first: the name of each, and the round of its predecessor after which it
#: branched off.
Lineage = tuple[tuple[str, int], ...]
#: The lineage of a federation that has not forgotten anyone.
ORIGIN: Lineage = (("origin", 0),)
#: The number of items from each of these rounds on, in ascending order.
Sizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Order:
    """Which federation, trajectory and round a task belongs to, and which users are asked.

    ``number`` grows with every order: one with a lower number than the last is out of date, one with the same number is
    a repetition. ``in_service`` is the trajectory in service: the last of ``lineage`` or, during an erasure, the one
    before it. ``since`` is the last round of each user that the server accepted on this trajectory, ``served`` that on
    the trajectory in service; the device undoes later rounds, since their updates arrived too late. ``factors`` are the
    factors of accepted rounds that the server calibrated, by trajectory and round. ``rounds`` are the past rounds that
    each user replays, in ascending order, and ``round`` is the first of all; if empty, each is asked for ``round``.

    ``sizes`` are the sizes of the catalogue; if empty, it has not grown. ``new_items`` are the ids of its last items,
    as far as the server does not know that the device has them. ``erased`` are, for each user, the number of the last
    of its own requests to forget items that this trajectory is without, ``erased_in_service`` that of the trajectory in
    service; 0 if there is none, and empty if nobody has one.

    ``cohorts`` are, with secure aggregation, the public keys of the devices in the sum of each round.
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
    sizes: Sizes = ()
    new_items: tuple[ItemId, ...] = ()
    erased: tuple[int, ...] = ()
    erased_in_service: tuple[int, ...] = ()
    cohorts: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)

    @property
    def branches(self) -> bool:
        """Whether the task is on a new trajectory, which is not in service yet."""
        return self.trajectory != self.in_service

    def erased_of(self, *, in_service: bool = False) -> dict[UserId, int]:
        """The number of the last request of each user that the trajectory, or the one in service, is without."""
        numbers = self.erased_in_service if in_service else self.erased
        return dict(zip(self.users, numbers or (0,) * len(self.users), strict=True))

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
