"""LogStore: the interface of the stores that keep update logs.

A store holds entries by user key and round, without reading their bytes. It also holds each user's exact private
parameters after its newest round and before it, so that a round can be repeated. A real device has one user; a
simulation keeps all users in one store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.entries import Entries, Keys
from fedforget.models.parameters import Array
from fedforget.runtime.randomness import Rounds


@dataclass(frozen=True)
class PrivateState:
    """Private parameters of some users, each with the round after which they were stored (0: before its first).

    ``damaged`` are users with stored parameters that fail their check, in the file or folder ``source``.
    """

    keys: Keys
    rounds: NDArray[np.int64]
    rows: Array
    damaged: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    source: str = ""

    @classmethod
    def of(cls, found: Sequence[tuple[int, int, Array]]) -> PrivateState:
        """Private parameters from triples of key, round and row."""
        return cls(
            np.array([key for key, _, _ in found], np.uint64),
            np.array([round_ for _, round_, _ in found], np.int64),
            np.stack([row for _, _, row in found]) if found else np.empty((0, 0), np.float32),
        )

    def without(self, keys: Keys) -> PrivateState:
        """The private parameters of all other users."""
        keep = ~np.isin(self.keys, keys)
        return PrivateState(self.keys[keep], self.rounds[keep], self.rows[keep], self.damaged, self.source)


class LogStore(Protocol):
    """Entries by round and user, and exact private parameters."""

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Add entries, and each user's private parameters after its last round. All or nothing.

        The entries may belong to one round or to several that are one step. The private parameters from before the
        step are kept. An entry of the same user and round is replaced.
        """

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of these users for a round, in the order of ``keys``; users without one are left out."""

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry of each of these users up to a round, and its round; users without one are left out."""

    def private_state(self, until: int) -> PrivateState:
        """The exact private parameters of each user after its last round up to ``until``.

        Users who took part more than once after ``until`` are left out: only their entries go back that far.
        """

    def set_private_state(self, exact: PrivateState) -> None:
        """Replace the private parameters of these users; earlier ones are removed."""

    def roll_back(self, round_: int) -> None:
        """Remove all entries and exact private parameters of later rounds."""

    def drop(self, round_: int, keys: Keys) -> None:
        """Remove the entries of some users for one round."""

    def branch(self, folder: Path | None, until: int, without: Keys) -> LogStore:
        """A new store of the same kind with everything up to a round except what belongs to some users.

        It has the entries up to the round and what ``private_state(until)`` returns. This store does not change.
        """

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For each round with entries, in ascending order: the users and the bytes of each user's entry."""

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""

    def close(self) -> None:
        """Close all files."""
