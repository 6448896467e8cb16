"""LogStore: the contract of every place where device logs are kept.

A store holds, by user key and round, entries whose bytes it does not read, and beside them each user's private
parameters, exactly: as they are after its newest entry, and as they were before it, so that a round can be asked for
again. On a real device there is one user; a simulation keeps them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedforget.device.log.entries import Entries, Keys
from fedforget.models.parameters import Array
from fedforget.runtime.randomness import Rounds


@dataclass(frozen=True)
class PrivateState:
    """Private parameters of some users, each with the round after which it had them (0: before its first)."""

    keys: Keys
    rounds: NDArray[np.int64]
    rows: Array


def others(exact: PrivateState, keys: Keys) -> PrivateState:
    """The exact private parameters of all but some users."""
    stay = ~np.isin(exact.keys, keys)
    return PrivateState(exact.keys[stay], exact.rounds[stay], exact.rows[stay])


def stacked(found: list[tuple[int, int, Array]]) -> PrivateState:
    """Private parameters from (key, round, row)."""
    return PrivateState(
        np.array([key for key, _, _ in found], np.uint64),
        np.array([round_ for _, round_, _ in found], np.int64),
        np.stack([row for _, _, row in found]) if found else np.empty((0, 0), np.float32),
    )


class LogStore(Protocol):
    """Entries by (round, user), and exact private parameters."""

    def append(self, rounds: Rounds, entries: Entries, private: Array) -> None:
        """Add entries, and what each user's private parameters are after its round. All or nothing.

        They may be of one round or of several that belong together: what a user's private parameters were before the
        first of them stays known. An entry for the same user and round is replaced.
        """

    def read(self, round_: int, keys: Keys) -> Entries:
        """The entries of those of these users who have one for the round, in the order asked."""

    def newest(self, until: int, keys: Keys) -> tuple[Entries, NDArray[np.int64]]:
        """The newest entry up to a round of those of these users who have one, and the round of each."""

    def private_state(self, until: int) -> PrivateState:
        """For every user of whom it is known exactly: the private parameters after the last round up to this one.

        A user who has taken part more than once since is not among them: then only its entries can tell.
        """

    def set_private_state(self, exact: PrivateState) -> None:
        """Let these be the private parameters of these users; nothing is known of what they were before."""

    def roll_back(self, round_: int) -> None:
        """Drop every entry after this round, and exact private parameters of later rounds."""

    def drop(self, round_: int, keys: Keys) -> None:
        """Drop the entries of some users for one round (to stay within a quota)."""

    def branch(self, folder: Path | None, until: int, without: Keys) -> LogStore:
        """A new store of the same kind that begins as this one up to a round, with no trace of some users.

        It takes over the entries up to the round and what ``exact(until)`` tells. This store stays as it is.
        """

    def heads(self) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
        """For every round with entries, the oldest first: whose they are, and how many bytes each has."""

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""

    def close(self) -> None:
        """Let go of any file."""
