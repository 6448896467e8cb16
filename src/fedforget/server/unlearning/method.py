"""Method: an unlearning algorithm, and the past rounds that it is given to work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from fedforget.models import Public, Recommender
from fedforget.randomness import UserId
from fedforget.replay import Replay
from fedforget.server.clients import Clients
from fedforget.server.rounds import Aggregator, Protocol
from fedforget.server.state import ServerState
from fedforget.updates import Answers

#: Which users are asked for which past round.
Asked = Mapping[int, Sequence[UserId]]
#: What a method returns for a step: the server's state after it, and the answers of each past round.
Result = tuple[ServerState, Mapping[int, Answers]]


@dataclass(frozen=True)
class Past:
    """The past rounds that have to be gone through again: for each, those of its users who stay.

    ``first`` is the first round that a leaver took part in; ``whole`` are those rounds that were trained in full, one
    by one, as an earlier erasure may not have left them. ``draw`` draws a cohort for a round, of a fraction of all
    users who stay. ``moved`` says how far the item table moved in some of these rounds, from the first to the last, as
    they went.
    """

    stayers: Asked
    first: int
    whole: Set[int]
    draw: Callable[[int, float], Sequence[UserId]]
    moved: Callable[[int, int], float]

    @property
    def last(self) -> int:
        """The last round."""
        return max(self.stayers, default=0)


@dataclass(frozen=True)
class Step:
    """The past rounds ``first`` to ``last``, gone through again in one communication round.

    ``asked`` says who is asked for which of them. Each device gets one message, whatever the number of its rounds.
    ``as_it_was`` says that nothing is to be shortened, since no leaver had taken part before.
    """

    first: int
    last: int
    asked: Asked
    as_it_was: bool = False

    @property
    def devices(self) -> set[UserId]:
        """Everyone who is asked."""
        return {user for users in self.asked.values() for user in users}


@dataclass(frozen=True)
class PastStep:
    """A step ``of`` the past that is to be carried out, from the server's ``state`` before it.

    ``number`` counts the steps from 1; ``epochs`` is how long devices train in a round.
    """

    step: Step
    of: Past
    number: int
    state: ServerState
    epochs: int
    clients: Clients
    aggregator: Aggregator

    @property
    def asked(self) -> Asked:
        """Who is asked for which round."""
        return self.step.asked

    @property
    def public(self) -> Public:
        """The public parameters before the step."""
        return self.state.public

    def train(self) -> Result:
        """Train its rounds in full, without looking at any log."""
        return self.replay(Replay(self.epochs, parts=None))

    def replay(self, how: Replay) -> Result:
        """Let devices go through its rounds again."""
        return self.take(self.clients.replay(self.asked, self.public, how))

    def recall(self) -> Result:
        """Take the updates that the devices' logs have for its rounds."""
        n_items = self.public.items.shape[0]
        return self.take({round_: self.clients.recall(round_, users, n_items) for round_, users in self.asked.items()})

    def take(self, answers: Mapping[int, Answers]) -> Result:
        """Combine what comes back, each past round by itself, and apply one round's step after the other."""
        state, taken = self.state, {}
        for round_, users in self.asked.items():
            step, taken[round_] = self.aggregator.combined(answers[round_], self.public, users)
            state = self.aggregator.apply(state, step, round_)
        return state, taken


@dataclass(frozen=True)
class Method(ABC):
    """An unlearning algorithm. A new one is one class: its settings as fields, a name, and ``step``."""

    name: ClassVar[str]

    @abstractmethod
    def step(self, past: PastStep) -> Result:
        """Go through the past rounds of one step again."""

    def schedule(self, past: Past) -> list[Step]:
        """How past rounds are put together to steps; by default each is one."""
        return strides(past, 1)

    def for_model(self, model: Recommender) -> Self:
        """The same method, with every setting that depends on the model filled in."""
        return self

    def for_protocol(self, protocol: Protocol) -> Self:
        """The same method, with every setting that depends on how the server combines updates filled in."""
        return self

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
        """How many updates a device sends for a replayed round: for estimates."""
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


def strides(past: Past, stride: int, after: int = 0) -> list[Step]:
    """Steps of so many rounds each, of those after some round; the last may have fewer."""
    rounds = sorted(round_ for round_ in past.stayers if round_ > after)
    groups = [rounds[place : place + stride] for place in range(0, len(rounds), stride)]
    return [
        Step(group[0], group[-1], {round_: past.stayers[round_] for round_ in group if past.stayers[round_]})
        for group in groups
    ]
