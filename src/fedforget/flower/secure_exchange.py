"""SecureExchange: the two messages of secure sums, with the nodes of a fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flwr.app import RecordDict

from fedforget.flower import messages, secure_messages
from fedforget.flower.arrays import MessageError
from fedforget.flower.secure_messages import Place
from fedforget.protocol import masking, reasons
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.masking import Graph
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Asked
from fedforget.runtime.randomness import UserId
from fedforget.server.history import History
from fedforget.server.unmasking import SecureSum

if TYPE_CHECKING:
    from fedforget.flower.fleet import FlowerFleet

#: How often the devices of a sum are asked, each time without those that disappeared between the two messages.
ATTEMPTS = 3


@dataclass(frozen=True)
class Request:
    """What devices are asked to add up.

    ``pack`` makes the message of an order, ``task`` and ``parameters`` (the digest of the global parameters) are part
    of the context of the sums, ``size`` is the length of the vector in a round.
    """

    kind: str
    pack: Callable[[Order], RecordDict]
    task: Mapping[str, object]
    parameters: str
    size: Callable[[int], int]


@dataclass(frozen=True)
class RoundSum:
    """The sum of the vectors of some users, who were among ``devices`` that were asked."""

    users: list[UserId]
    devices: int
    words: Words


@dataclass(frozen=True)
class Sums:
    """The sums of rounds, the reason for everybody who is in none, and the seconds that devices trained."""

    by_round: Mapping[int, RoundSum]
    failures: Mapping[Place, str]
    seconds: float = 0.0


class SecureExchange:
    """Asks devices for their parts of sums, and then for what removes the masks."""

    def __init__(self, fleet: FlowerFleet, history: History, in_service: History) -> None:
        self.fleet = fleet
        self.history = history
        self.in_service = in_service
        self.minimum = fleet.config.server.minimum

    def run(self, request: Request, asked: Asked) -> Sums:
        """The sum of each round. If masks of one cannot be removed, all are asked again without lost devices."""
        failures: dict[Place, str] = {}
        for _ in range(ATTEMPTS):
            asked = self._with_keys(asked, failures)
            if not asked:
                break
            attempt = _Attempt(self, request, asked)
            attempt.ask()
            failures |= attempt.failures
            words = attempt.totals()
            if all(total is not None for total in words.values()):
                return Sums(
                    {
                        round_: RoundSum(list(attempt.sums[round_].arrived), len(asked[round_]), total)
                        for round_, total in words.items()
                        if total is not None
                    },
                    failures,
                    attempt.seconds,
                )
            failures |= dict.fromkeys(attempt.lost, reasons.NOT_REVEALED)
            lost = {user for _, user in failures}
            asked = {
                round_: [user for user in each.arrived if user not in lost] for round_, each in attempt.sums.items()
            }
        failures |= {
            (round_, user): reasons.NOT_REVEALED
            for round_, users in asked.items()
            for user in users
            if (round_, user) not in failures
        }
        return Sums({}, failures)

    def _with_keys(self, asked: Asked, failures: dict[Place, str]) -> dict[int, list[UserId]]:
        """The users whose keys are known; rounds with too few of them for a sum are left out."""
        keys = self.keys([user for users in asked.values() for user in users])
        usable = {}
        for round_, users in asked.items():
            failures |= {(round_, user): reasons.NO_KEY for user in users if user not in keys}
            known = [user for user in users if user in keys]
            if len(known) >= self.minimum:
                usable[round_] = known
            else:
                failures |= {(round_, user): reasons.TOO_FEW for user in known}
        return usable

    def keys(self, users: Sequence[UserId]) -> dict[UserId, bytes]:
        """The public keys of users; unknown ones are asked for, once."""
        registry, transport = self.fleet.registry, self.fleet.transport
        known = registry.sum_keys(users)
        missing = [user for user in dict.fromkeys(users) if user not in known]
        if not missing:
            return known
        by_node: dict[int, list[UserId]] = defaultdict(list)
        for user, node in registry.nodes_of(missing).items():
            by_node[node].append(user)
        federation = self.fleet.config.id
        contents = {node: secure_messages.pack_key_request(federation, hosted) for node, hosted in by_node.items()}
        for node, content in transport.send(messages.KEYS, contents, "keys").contents.items():
            try:
                registry.set_sum_keys(secure_messages.unpack_keys(content, by_node[node]))
            except MessageError:
                continue  # its users have no key, which is their reason
        return registry.sum_keys(users)


class _Attempt:
    """One order to the devices of some sums, and what came back."""

    def __init__(self, exchange: SecureExchange, request: Request, asked: Asked) -> None:
        self.exchange = exchange
        self.fleet = exchange.fleet
        self.request = request
        self.asked = asked
        keys = exchange.keys([user for users in asked.values() for user in users])
        cohorts = {round_: tuple(keys[user] for user in users) for round_, users in asked.items()}
        self.orders = {
            node: replace(order, cohorts={round_: cohorts[round_] for round_ in order.asked})
            for node, order in self.fleet.orders(exchange.history, exchange.in_service, asked).items()
        }
        self.sums = {}
        for round_, users in asked.items():
            order = next((order for order in self.orders.values() if round_ in order.cohorts), None)
            if order is not None:
                context = masking.context_of(order, round_, request.task, request.parameters)
                graph = Graph(context, cohorts[round_])
                own = {user: keys[user] for user in users}
                self.sums[round_] = SecureSum(graph, own, request.size(round_))
        self.failures: dict[Place, str] = {}
        self.seconds = 0.0

    def ask(self) -> None:
        """The first message: devices contribute."""
        contents = {node: self.request.pack(order) for node, order in self.orders.items()}
        replies = self.fleet.transport.send(self.request.kind, contents, str(min(self.asked)))
        users = [user for cohort in self.asked.values() for user in cohort]
        missing = self.fleet.failures(list(dict.fromkeys(users)), self.orders, replies)
        for round_, cohort in self.asked.items():
            self.failures |= {(round_, user): missing[user] for user in cohort if user in missing}
        for node, content in replies.contents.items():
            self._take(self.orders[node], node, content)
        self.fleet.registry.drop_sum_keys(
            {user for (_, user), reason in self.failures.items() if reason == reasons.OTHER_KEY}
        )
        for round_ in [round_ for round_, each in self.sums.items() if len(each.arrived) < self.exchange.minimum]:
            self.failures |= {(round_, user): reasons.TOO_FEW for user in self.sums.pop(round_).arrived}

    def _take(self, order: Order, node: int, content: RecordDict) -> None:
        """Take the contributions of one node."""
        wanted = {(round_, user) for round_, users in order.asked.items() for user in users}
        try:
            contributions, failures, seconds = secure_messages.unpack_contributions(content, wanted)
            self.fleet.note(node, messages.unpack_notice(content, order), order)
        except MessageError as error:
            self.failures |= dict.fromkeys(wanted, error.problem)
            return
        self.failures |= failures
        self.seconds = max(self.seconds, seconds)
        for (round_, user), contribution in contributions.items():
            if not self.sums[round_].add(user, contribution):
                self.failures[round_, user] = reasons.WRONG_MASKS

    def totals(self) -> dict[int, Words | None]:
        """The sum of each round; None if its masks cannot be removed."""
        if not all(each.recoverable for each in self.sums.values()):
            return dict.fromkeys(self.sums)
        self._reveal()
        return {round_: each.total() for round_, each in self.sums.items()}

    def _reveal(self) -> None:
        """The second message: devices reveal what removes the masks."""
        contents, sizes = {}, {}
        for node, order in self.orders.items():
            places = [
                (round_, user)
                for round_, users in order.asked.items()
                for user in users
                if round_ in self.sums and user in self.sums[round_].arrived
            ]
            if places:
                orders = [self.sums[round_].reveal_order(user, round_) for round_, user in places]
                contents[node] = secure_messages.pack_reveals(order.federation, order.number, orders)
                sizes[node] = {(round_, user): self.sums[round_].revealed_sizes(user) for round_, user in places}
        replies = self.fleet.transport.send(messages.REVEAL, contents, str(min(self.asked)))
        for node, content in replies.contents.items():
            try:
                revealed = secure_messages.unpack_revealed(content, sizes[node])
            except MessageError:
                continue  # as if it had not replied
            for (round_, user), each in revealed.items():
                self.sums[round_].add_revealed(user, each)

    @property
    def lost(self) -> list[Place]:
        """Those who contributed to a sum whose masks they then did not help to remove."""
        complete = all(each.recoverable for each in self.sums.values())
        return [(round_, user) for round_, each in self.sums.items() for user in each.lost] if complete else []
