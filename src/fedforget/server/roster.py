"""Roster: the users of a federation, and the cohort drawn for a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedforget.errors import ConfigError
from fedforget.runtime import randomness
from fedforget.runtime.randomness import UserId
from fedforget.server.server_config import ServerConfig


class Roster:
    """The users of a federation, and the round in which each joins (1 by default).

    ``joins`` are set at the start; ``added`` are users who were not known before the round from which they take part.
    """

    def __init__(
        self,
        users: Sequence[UserId],
        joins: Mapping[UserId, int] | None = None,
        added: Mapping[UserId, int] | None = None,
    ) -> None:
        self.users = list(users)
        self.first_round = np.ones(len(self.users), np.int64)
        self.known_since = np.zeros(len(self.users), np.int64)
        places = {user: place for place, user in enumerate(self.users)}
        for user, round_ in (joins or {}).items():
            if user not in places:
                raise ConfigError(f"User {user!r} is to join but is not in the data.", "Check the id and its type.")
            if round_ < 1:
                raise ConfigError(f"User {user!r} is to join in round {round_}.", "Rounds are counted from 1.")
            self.first_round[places[user]] = round_
        for user, round_ in (added or {}).items():
            self.known_since[places[user]] = round_

    def extended(self, users: Sequence[UserId], since: int) -> Roster:
        """The roster with more users, who are known from a round on."""
        other = Roster([])
        other.users = [*self.users, *users]
        other.first_round = np.concatenate([self.first_round, np.ones(len(users), np.int64)])
        other.known_since = np.concatenate([self.known_since, np.full(len(users), since)])
        keys = np.array([randomness.user_key(user) for user in users], np.uint64)
        other.__dict__["keys"] = np.concatenate([self.keys, keys])
        return other

    def count(self, round_: int) -> int:
        """The number of users that are known in a round."""
        return int(np.count_nonzero(self.known_since <= round_))

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """The key of each user's random draws."""
        return np.array([randomness.user_key(user) for user in self.users], np.uint64)

    def drawn(self, round_: int, server: ServerConfig, seed: int) -> list[UserId]:
        """Draw the users of a round as the server is configured."""
        return self.cohort(round_, server.fraction, seed, at_least=server.smallest_cohort)

    def cohort(
        self, round_: int, fraction: float, seed: int, known_in: int | None = None, at_least: int = 1
    ) -> list[UserId]:
        """Draw the users of a round: a fraction of those who have joined, in the roster's order.

        There are ``at_least`` as many, if as many have joined.

        Every user draws a keyed lot and the lowest lots win, so that a user's lot does not depend on other users.
        Users must be known in the round or, if given, in the round ``known_in``.
        """
        lots = randomness.priorities(seed, randomness.COHORT, round_, self.keys)
        joined = (self.first_round <= round_) & (self.known_since <= (round_ if known_in is None else known_in))
        n_joined = int(np.count_nonzero(joined))
        if n_joined == 0:
            return []
        size = min(max(at_least, int(fraction * n_joined + 0.5)), n_joined)
        low = np.flatnonzero(joined & (lots <= _generous_limit(size / n_joined)))
        if low.size < size:
            low = np.flatnonzero(joined)
        winners = low[np.argsort(lots[low], kind="stable")[:size]]
        return [self.users[place] for place in np.sort(winners)]


def _generous_limit(share: float) -> np.uint64:
    """A limit that about twice this share of the lots is below: only those are sorted, not all of them."""
    return np.uint64(min(2 * share + 1e-4, 1.0) * (2**64 - 2**11))
