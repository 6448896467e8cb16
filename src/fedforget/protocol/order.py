"""Order: what goes to a device over a network with every task, so that it can tell what to go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedforget.protocol.factors import Factors
from fedforget.runtime.randomness import UserId

#: The trajectories that led to one, in order, each with its name and the round of the one before after which it
#: branched off.
Lineage = tuple[tuple[str, int], ...]
#: A federation that has not forgotten anyone yet is on its first trajectory.
ORIGIN: Lineage = (("origin", 0),)


@dataclass(frozen=True)
class Order:
    """Which federation, trajectory and round a task belongs to, and which users are asked.

    ``number`` grows from order to order: a lower one than the last is out of date, the same one is a repetition.
    ``in_service`` names the trajectory in service, which is ``lineage``'s last or, while users are being forgotten, the
    one before it. ``since`` has for each user the last round on this trajectory that counted, and ``served`` the last
    one on the trajectory in service: whatever its device did after that came too late. ``factors`` are, by trajectory
    and round, those of such rounds in which the server calibrated. ``rounds`` are the past rounds that each user is to
    go through again, in ascending order, the first of all being ``round``; without them each is asked for that one.
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
