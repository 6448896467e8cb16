"""MemoryLog: for experiments that need not survive their process."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.models.parameters import Array
from fedforget.randomness import UserId


class MemoryLog:
    """Keeps one array of private parameters a round."""

    def __init__(self) -> None:
        self._rounds: dict[int, dict[UserId, Array]] = {}

    def append(self, round_: int, users: Sequence[UserId], private: Array) -> None:
        """Store what these users' private parameters are after a round, replacing an entry for the same round."""
        if users:
            self._rounds.setdefault(round_, {}).update(zip(users, private.copy(), strict=True))

    def latest(self, until: int | None = None) -> dict[UserId, Array]:
        """The newest private parameters, up to a round if one is given, of every user that has an entry."""
        rounds = [self._rounds[round_] for round_ in sorted(self._rounds) if until is None or round_ <= until]
        return {user: row.copy() for entries in rounds for user, row in entries.items()}

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round."""
        self._rounds = {kept: entries for kept, entries in self._rounds.items() if kept <= round_}

    def close(self) -> None:
        """There is no file to let go of."""

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return max(self._rounds, default=0)
