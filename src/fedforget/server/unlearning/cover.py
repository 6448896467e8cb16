"""Cover: with secure aggregation, users who are left out of a replay together with those whose data is forgotten.

A round that is replayed from the same parameters as before, without one user, has the old sum less that user's update:
the difference of two sums would be the update that secure aggregation hides. So in every round that a forgotten user
took part in, further users are left out until the two sums differ by ``minimum`` users. As far as possible they are the
same users in all rounds of an erasure, and others in the next erasure. They stay members and take part in later rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.runtime import randomness
from fedforget.runtime.randomness import UserId


@dataclass(frozen=True)
class Cover:
    """Chooses the users to leave out of the rounds of one erasure, which makes trajectory number ``trajectory``.

    ``forgotten`` are the users who leave, ``changed`` all of whom something is forgotten. With ``minimum`` 0 (plain
    updates) nobody else is left out.
    """

    forgotten: Collection[UserId]
    changed: Collection[UserId]
    minimum: int
    seed: int
    trajectory: int

    def remaining(self, participants: Sequence[UserId]) -> list[UserId]:
        """The participants of a past round who replay it."""
        stay = [user for user in participants if user not in self.forgotten]
        changed = sum(user in self.changed for user in participants)
        left_out = self._left_out(stay, self.minimum - changed) if changed else set()
        return [user for user in stay if user not in left_out]

    def drawn(self, cohort: Sequence[UserId], members: Sequence[UserId]) -> list[UserId]:
        """The cohort of a new round, which may have the parameters of an earlier one, without left-out members."""
        left_out = self._left_out(members, self.minimum - len(self.changed))
        return [user for user in cohort if user not in left_out]

    def _left_out(self, users: Sequence[UserId], count: int) -> set[UserId]:
        """So many of the users who are not changed, by keyed lots."""
        if count <= 0:
            return set()
        others = [user for user in users if user not in self.changed]
        keys = np.array([randomness.user_key(user) for user in others], np.uint64)
        lots = randomness.priorities(self.seed, randomness.COVER, self.trajectory, keys)
        return {others[place] for place in np.argsort(lots, kind="stable")[:count]}
