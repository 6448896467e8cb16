"""The simulation: server and all devices in one process."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.device.devices import Devices
from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.clients import Answers


class Simulation:
    """Implements the server's ``Clients`` by calling the devices directly."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Let these users train from ``public``."""
        return Answers(*self.devices.train(round_, public, users, epochs))

    def roll_back(self, round_: int) -> None:
        """Let every device return to its state after this round."""
        self.devices.roll_back(round_)
