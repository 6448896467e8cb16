"""Method: an unlearning algorithm, and the past rounds that it works on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self

from fedforget.models import GlobalParameters, Recommender
from fedforget.protocol.tasks import Asked, Recall, Task, Train
from fedforget.protocol.updates import CohortResult
from fedforget.runtime.components import Component
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.rounds import Aggregator
from fedforget.server.server_config import ServerConfig
from fedforget.server.state import ServerState

#: The server's state after a step, and the accepted result of each round of ``PastStep.asked``. Other past rounds of
#: the step have none; the history records that nobody took part in them.
Result = tuple[ServerState, Mapping[int, CohortResult]]


@dataclass(frozen=True)
class Past:
    """The past rounds to replay: for each, the remaining users who took part.

    ``first`` is the first round that a forgotten user took part in. ``whole`` are the rounds that were trained one by
    one in full, not replayed by an earlier erasure. ``draw`` draws a fraction of the remaining users as the cohort of a
    round. ``moved`` is the distance that the item table moved from one round to another (both inclusive).
    """

    remaining: Asked
    first: int
    whole: Set[int]
    draw: Callable[[int, float], Sequence[UserId]]
    moved: Callable[[int, int], float]

    @property
    def last(self) -> int:
        return max(self.remaining, default=0)


@dataclass(frozen=True)
class Step:
    """The past rounds ``first`` to ``last``, replayed in one communication round.

    ``asked`` has the users of each round; a device gets one message for all its rounds. With ``in_full`` the rounds are
    trained in full, since no forgotten user had taken part before.
    """

    first: int
    last: int
    asked: Asked
    in_full: bool = False

    @property
    def devices(self) -> set[UserId]:
        """All users who are asked."""
        return {user for users in self.asked.values() for user in users}


@dataclass(frozen=True)
class PastStep:
    """A step ``of`` the past to carry out, from the server's ``state`` before it.

    ``number`` counts the steps from 1; ``epochs`` is the number of local epochs in a round.
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
        """The users of each round."""
        return self.step.asked

    @property
    def public(self) -> GlobalParameters:
        """The global parameters before the step."""
        return self.state.public

    def train(self) -> Result:
        """Train its rounds in full, without using logs."""
        return self.run(Train(self.epochs))

    def recall(self) -> Result:
        """Apply the logged updates of its rounds."""
        task = Recall()
        results = {round_: self.clients.run(task, {round_: users})[round_] for round_, users in self.asked.items()}
        return self.take(results)

    def run(self, task: Task) -> Result:
        """Run a task on the devices for its rounds, and apply the results."""
        return self.take(self.clients.run(task, self.asked, self.public))

    def take(self, results: Mapping[int, CohortResult]) -> Result:
        """Combine the updates of each past round, and apply them one after the other."""
        state, taken = self.state, {}
        for round_, users in self.asked.items():
            step, taken[round_] = self.aggregator.combine(results[round_], self.public, users)
            state = self.aggregator.apply(state, step, round_)
        return state, taken


@dataclass(frozen=True)
class Method(Component):
    """Base class of unlearning algorithms. A new one has settings as fields, a name, and ``step``."""

    @abstractmethod
    def step(self, past: PastStep) -> Result:
        """Replay one step: the server's state after it, and the accepted result of each round that is asked for.

        It is called only for steps with users to ask. ``PastStep.run`` and its likes return what is needed.
        """

    def schedule(self, past: Past) -> list[Step]:
        """Group past rounds into steps; by default each round is one."""
        return strides(past, 1)

    def for_model(self, model: Recommender) -> Self:
        """This method with the defaults that depend on the model."""
        return self

    def for_server(self, server: ServerConfig) -> Self:
        """This method with the defaults that depend on the server's configuration."""
        return self

    def begin(self, first: int, last: int) -> int:
        """The first round to replay when forgotten users took part from ``first`` on."""
        return first

    def trains_anew(self, rounds: int) -> bool:
        """Whether it trains a new model on everything that devices have now, instead of replaying these past rounds."""
        return False

    def more_rounds(self, last: int) -> int:
        """The number of ordinary rounds to train at the end."""
        return 0

    def training_share(self, epochs: int) -> float:
        """Training in a replayed round as a fraction of that in a full round; for estimates."""
        return 1.0

    def updates_sent(self) -> int:
        """The number of updates that a device sends for a replayed round; for estimates."""
        return 1

    def needs_whole_updates(self) -> bool:
        """Whether the devices' logs must hold whole updates, not only their lengths."""
        return False

    def shortens_training(self) -> bool:
        """Whether it trains fewer local epochs; a closed-form model has none."""
        return False


def strides(past: Past, stride: int, after: int = 0) -> list[Step]:
    """Group the rounds after ``after`` into steps of ``stride`` rounds; the last may be shorter."""
    rounds = sorted(round_ for round_ in past.remaining if round_ > after)
    groups = [rounds[place : place + stride] for place in range(0, len(rounds), stride)]
    return [
        Step(group[0], group[-1], {round_: past.remaining[round_] for round_ in group if past.remaining[round_]})
        for group in groups
    ]
