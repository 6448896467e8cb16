"""The simulation: server and all devices in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedforget.device.devices import Devices
from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.replay import Factors, Replay
from fedforget.updates import Answers

OFFLINE = "it did not answer"
#: Whether a user's device is out of reach in a round: for trying out what happens then.
Offline = Callable[[int, UserId], bool]


class Simulation:
    """Implements the server's ``Clients`` by calling the devices directly."""

    def __init__(self, devices: Devices, offline: Offline | None = None) -> None:
        self.devices = devices
        self.offline = offline

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Let these users train from ``public``."""
        return self._reach(round_, users, lambda there: self.devices.train(round_, public, there, epochs))

    def replay(self, round_: int, public: Public, users: Sequence[UserId], how: Replay) -> Answers:
        """Let these users go through a past round again."""
        return self._reach(round_, users, lambda there: self.devices.replay(round_, public, there, how))

    def settle(self, round_: int, factors: Factors) -> None:
        """Tell the users of a replay how their fresh updates were scaled."""
        self.devices.settle(round_, factors)

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Let these users return what their logs have for a past round."""
        return self._reach(round_, users, lambda there: self.devices.recall(round_, there, n_items))

    def _reach(self, round_: int, users: Sequence[UserId], ask: Callable[[Sequence[UserId]], Answers]) -> Answers:
        if self.offline is None:
            return ask(users)
        away = {user: OFFLINE for user in users if self.offline(round_, user)}
        answers = ask([user for user in users if user not in away])
        return replace(answers, failures={**away, **answers.failures})
