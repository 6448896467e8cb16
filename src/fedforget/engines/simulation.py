"""The simulation: server and all devices in one process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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

    def replay(self, asked: Mapping[int, Sequence[UserId]], public: Public, how: Replay) -> dict[int, Answers]:
        """Let users go through past rounds again; who is out of reach in the first of them is so in all."""
        away = self._away(min(asked), {user for users in asked.values() for user in users})
        there = {round_: [user for user in users if user not in away] for round_, users in asked.items()}
        answers = self.devices.replay(there, public, how)
        return {round_: _with(answers[round_], away, users) for round_, users in asked.items()}

    def settle(self, round_: int, factors: Factors) -> None:
        """Tell the users of a replay how their fresh updates were scaled."""
        self.devices.settle(round_, factors)

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Let these users return what their logs have for a past round."""
        return self._reach(round_, users, lambda there: self.devices.recall(round_, there, n_items))

    def _reach(self, round_: int, users: Sequence[UserId], ask: Callable[[Sequence[UserId]], Answers]) -> Answers:
        away = self._away(round_, users)
        return _with(ask([user for user in users if user not in away]), away, users)

    def _away(self, round_: int, users: Collection[UserId]) -> set[UserId]:
        return set() if self.offline is None else {user for user in users if self.offline(round_, user)}


def _with(answers: Answers, away: Collection[UserId], users: Sequence[UserId]) -> Answers:
    """The answers of a cohort, of whom some were out of reach."""
    if not away:
        return answers
    return replace(answers, failures={**{user: OFFLINE for user in users if user in away}, **answers.failures})
