"""SecureExchange: the two messages of secure sums, with the nodes of a fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flwr.app import RecordDict

from fedforget.flower import messages, secure_messages
from fedforget.flower.arrays import MessageError
from fedforget.flower.secure_messages import Place
from fedforget.protocol import masking, reasons
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Asked
from fedforget.runtime.randomness import UserId
from fedforget.server.history import History
from fedforget.server.unmasking import SecureSum

if TYPE_CHECKING:
    from fedforget.flower.fleet import FlowerFleet

#: How often devices are asked for a sum that does not come out, each time without those that are to blame.
ATTEMPTS = 3


@dataclass(frozen=True)
class Request:
    """What devices are asked to add up.

    ``pack`` makes the message of an order, ``task`` and ``parameters`` (the digest of the global parameters) are part
    of the context of the sums, ``size`` is the length of the vector in a round. If fewer updates than ``required``
    arrive, no mask is removed: the devices are to be asked again, and two sums over nearly the same devices would tell
    the difference.
    """

    kind: str
    pack: Callable[[Order], RecordDict]
    task: Mapping[str, object]
    parameters: str
    size: Callable[[int], int]
    required: float = 0.0


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
        """The sum of each round; rounds whose masks cannot be removed have none.

        Devices are asked again, without those whose answers were wrong or missing, only if no sum was learned: from two
        sums over nearly the same devices the server could compute the difference.
        """
        failures: dict[Place, str] = {}
        for number in range(1, ATTEMPTS + 1):
            keys = self.keys([user for users in asked.values() for user in users])
            asked = self._with_keys(asked, keys, failures)
            if not asked:
                return Sums({}, failures)
            attempt = _Attempt(self, request, asked, keys)
            attempt.ask()
            sums, lost = attempt.totals(last=number == ATTEMPTS)
            failures |= {**attempt.failures, **lost}
            users = {user for _, user in lost}
            left = {
                round_: [user for user in each.arrived if user not in users] for round_, each in attempt.sums.items()
            }
            if sums or left == asked:
                break
            asked = left
        unknown = {(round_, user) for round_, users in asked.items() if round_ not in sums for user in users}
        return Sums(sums, {**dict.fromkeys(unknown, reasons.NOT_REVEALED), **failures}, attempt.seconds)

    def _with_keys(
        self, asked: Asked, keys: Mapping[UserId, bytes], failures: dict[Place, str]
    ) -> dict[int, list[UserId]]:
        """The users whose keys are known; rounds with too few of them for a sum are left out."""
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
        received: dict[UserId, bytes] = {}
        for node, content in transport.send(messages.KEYS, contents, "keys").contents.items():
            with suppress(MessageError):  # its users have no key, which is their reason
                received |= secure_messages.unpack_keys(content, by_node[node])
        registry.set_sum_keys(received)
        return registry.sum_keys(users)


class _Attempt:
    """One order to the devices of some sums, and what came back."""

    def __init__(self, exchange: SecureExchange, request: Request, asked: Asked, keys: Mapping[UserId, bytes]) -> None:
        self.exchange = exchange
        self.fleet = exchange.fleet
        self.request = request
        self.asked = asked
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
                self.sums[round_] = SecureSum(context, {user: keys[user] for user in users}, request.size(round_))
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
        self._drop([round_ for round_, each in self.sums.items() if len(each.arrived) < self.exchange.minimum])

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

    def totals(self, *, last: bool) -> tuple[dict[int, RoundSum], dict[Place, str]]:
        """The sums of the rounds whose masks can be removed, and the devices because of which others cannot be.

        Nothing is revealed if too few devices have answered or, unless it is the last attempt, if a sum would be lost.
        """
        if sum(len(each.arrived) for each in self.sums.values()) < self.request.required:
            self._drop(self.sums)
        recoverable = {round_: each for round_, each in self.sums.items() if each.recoverable}
        if len(recoverable) < len(self.sums) and not last:
            return {}, {}
        self._reveal(recoverable)
        sums: dict[int, RoundSum] = {}
        lost: dict[Place, str] = {}
        for round_, each in recoverable.items():
            words = each.total()
            if words is None:
                lost |= {(round_, user): reasons.NOT_REVEALED for user in each.silent}
                lost |= {(round_, user): reasons.WRONG_MASKS for user in each.wrong}
            else:
                sums[round_] = RoundSum(list(each.arrived), len(self.asked[round_]), words)
        return sums, lost

    def _drop(self, rounds: Iterable[int]) -> None:
        """Give up sums before anything is revealed."""
        for round_ in list(rounds):
            users = self.sums.pop(round_).arrived
            self.failures |= {(round_, user): reasons.TOO_FEW for user in users}

    def _reveal(self, sums: Mapping[int, SecureSum]) -> None:
        """The second message: devices reveal what removes the masks of some sums."""
        contents, sizes = {}, {}
        for node, order in self.orders.items():
            places = [
                (round_, user)
                for round_, users in order.asked.items()
                for user in users
                if round_ in sums and user in sums[round_].arrived
            ]
            if places:
                orders = [sums[round_].reveal_order(user, round_) for round_, user in places]
                contents[node] = secure_messages.pack_reveals(order.federation, order.number, orders)
                sizes[node] = {(round_, user): sums[round_].revealed_sizes(user) for round_, user in places}
        replies = self.fleet.transport.send(messages.REVEAL, contents, str(min(self.asked)))
        for node, content in replies.contents.items():
            try:
                revealed = secure_messages.unpack_revealed(content, sizes[node])
            except MessageError:
                continue  # as if it had not replied
            for (round_, user), each in revealed.items():
                sums[round_].add_revealed(user, each)
