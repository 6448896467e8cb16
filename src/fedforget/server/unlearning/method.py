"""Method: how a federation gets rid of what users who leave have left in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from fedforget.models import Public
from fedforget.randomness import UserId
from fedforget.server.aggregate import Step
from fedforget.server.clients import Clients
from fedforget.server.rounds import Aggregator
from fedforget.server.state import ServerState
from fedforget.updates import Answers


@dataclass(frozen=True)
class PastRound:
    """A round to be gone through again by the users of it who stay.

    ``first`` is the first round any leaver took part in; ``epochs`` is how long devices trained in it.
    """

    round: int
    first: int
    state: ServerState
    users: Sequence[UserId]
    epochs: int
    clients: Clients
    aggregator: Aggregator

    @property
    def public(self) -> Public:
        """The public parameters before the round."""
        return self.state.public

    def train(self) -> tuple[ServerState, Answers]:
        """Train it in full: what would have happened without the leavers."""
        return self.take(self.clients.train(self.round, self.public, self.users, self.epochs))

    def recall(self) -> tuple[ServerState, Answers]:
        """Take the updates that the devices' logs have for it."""
        return self.take(self.clients.recall(self.round, self.users, self.public.items.shape[0]))

    def take(self, answers: Answers) -> tuple[ServerState, Answers]:
        """Combine what comes back as it is, and apply it."""
        step, answers = self.combined(answers)
        return self.apply(step), answers

    def combined(self, answers: Answers) -> tuple[Step | None, Answers]:
        """The combined update of those that pass the checks (None without any), and the answers it is made of."""
        return self.aggregator.combined(answers, self.public, self.users)

    def apply(self, step: Step | None) -> ServerState:
        """The server's state after a combined update."""
        return self.aggregator.apply(self.state, step)


@dataclass(frozen=True)
class Method(ABC):
    """One way of forgetting. A new one is one class: its settings as fields, a name, and ``step``."""

    name: ClassVar[str]

    @abstractmethod
    def step(self, past: PastRound) -> tuple[ServerState, Answers]:
        """Go through one past round again."""

    def begin(self, first: int, last: int) -> int:
        """The first of the rounds up to ``last`` to go through again, when leavers took part from ``first`` on."""
        return first

    def more_rounds(self, last: int) -> int:
        """Ordinary rounds of training, without the leavers, to add at the end."""
        return 0

    def training_share(self, epochs: int) -> float:
        """How much of a full round's training a replayed round takes: for estimates."""
        return 1.0

    def updates_sent(self) -> int:
        """How many updates a device sends in a replayed round: for estimates."""
        return 1

    def needs_whole_updates(self) -> bool:
        """Whether the devices' logs must hold whole updates, not only their lengths."""
        return False

    def shortens_training(self) -> bool:
        """Whether it saves time by fewer local epochs, which a model with a closed-form update does not have."""
        return False

    def settings(self) -> dict[str, Any]:
        """The method's name and settings, for receipts."""
        return {"name": self.name, **{field.name: getattr(self, field.name) for field in fields(self)}}
