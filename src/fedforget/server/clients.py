"""Clients: the server's only view of the devices. An engine implements it, in process or over a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.replay import Factors, Replay
from fedforget.updates import Answers


class Clients(Protocol):
    """What a server may ask of devices: user ids in, updates or named failures out.

    Asking again for the same round gives the same answer.
    """

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Let these users train from ``public``."""

    def replay(self, asked: Mapping[int, Sequence[UserId]], public: Public, how: Replay) -> Mapping[int, Answers]:
        """Let users go through past rounds again, on a new trajectory, all from ``public``.

        ``asked`` says who is asked for which round. A device is reached once, whatever the number of its rounds.
        """

    def settle(self, round_: int, factors: Factors) -> None:
        """Tell the users of a replay that sent stored updates too how their fresh ones were scaled."""

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Let these users return, and take up again, what their logs have for a past round."""
