"""DeviceLog: the contract of every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedforget.models.parameters import Array
from fedforget.randomness import UserId


class DeviceLog(Protocol):
    """Private parameters by (user, round). On a real device there is one user; a simulation keeps them all."""

    def append(self, round_: int, users: Sequence[UserId], private: Array) -> None:
        """Store what these users' private parameters are after a round, replacing an entry for the same round."""

    def latest(self, until: int | None = None) -> dict[UserId, Array]:
        """The newest private parameters, up to a round if one is given, of every user that has an entry."""

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round."""

    def close(self) -> None:
        """Let go of any file."""

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""
