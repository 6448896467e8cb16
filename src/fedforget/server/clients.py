"""Clients: the server's only view of the devices. An engine implements it, in process or over a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.updates import Updates


@dataclass(frozen=True)
class Answers:
    """What came back from a cohort: updates, and for everyone else the reason why not."""

    updates: Updates
    failures: Mapping[UserId, str] = field(default_factory=dict)


class Clients(Protocol):
    """What a server may ask of devices: user ids in, updates or named failures out."""

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Let these users train from ``public``. Asking again for the same round gives the same answer."""

    def roll_back(self, round_: int) -> None:
        """Let every device return to its state after this round."""
