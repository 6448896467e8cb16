"""Clients: the server's only view of the devices. An engine implements it, in process or over a network."""

from __future__ import annotations

from collections.abc import Sequence
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

    def replay(self, round_: int, public: Public, users: Sequence[UserId], how: Replay) -> Answers:
        """Let these users go through a past round again, on a new trajectory, from ``public``."""

    def settle(self, round_: int, factors: Factors) -> None:
        """Tell the users of a replay that sent stored updates too how their fresh ones were scaled."""

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Let these users return, and take up again, what their logs have for a past round."""
