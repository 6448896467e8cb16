"""MemoryLog: for experiments that need not survive their process."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.device.log.contract import UserId
from fedforget.models.parameters import Array


class MemoryLog:
    """Keeps one array of private parameters a round."""

    def __init__(self) -> None:
        self._rounds: dict[int, dict[UserId, Array]] = {}

    def append(self, round_: int, users: Sequence[UserId], private: Array) -> None:
        """Store what these users' private parameters are after a round, replacing an entry for the same round."""
        if users:
            self._rounds.setdefault(round_, {}).update(zip(users, private.copy(), strict=True))

    def latest(self) -> dict[UserId, Array]:
        """The newest private parameters of every user that has an entry."""
        return {user: row.copy() for round_ in sorted(self._rounds) for user, row in self._rounds[round_].items()}

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round."""
        self._rounds = {kept: entries for kept, entries in self._rounds.items() if kept <= round_}

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
        return max(self._rounds, default=0)
