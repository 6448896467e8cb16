"""FlowerFleet: the server's ``Fleet`` and ``Clients`` on a Flower network."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedforget.errors import NoAnswerError
from fedforget.flower import messages
from fedforget.flower.arrays import MessageError
from fedforget.flower.transport import Replies, Transport
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.fixed_point import SumFormat, decode_fractions
from fedforget.protocol.metrics import FULL, SAMPLED, K
from fedforget.protocol.notice import Notice
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Asked, RemoveItems, Task
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.factors import FactorsFolder
from fedforget.server.fleet import FleetEvaluation
from fedforget.server.history import History
from fedforget.server.node_registry import NodeRegistry, WipeOrder
from fedforget.server.run_config import RunConfig

#: Seconds before a step that too few devices answered is asked again; doubled every time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: Names of the metrics in a device's reply.
METRICS = [*(f"sampled_{name}" for name in SAMPLED), *(f"full_{name}" for name in FULL)]


class FlowerFleet:
    """The devices of a federation; each node gets one message for all of its users.

    A step that too few devices answer is asked again for ``deadline`` seconds; ``tell`` says so. One update must come,
    and in a replay the share ``replay_share`` of the devices must answer.
    """

    def __init__(
        self,
        grid: Grid,
        config: RunConfig,
        registry: NodeRegistry,
        timeout: float,
        deadline: float = 600.0,
        replay_share: float = 0.5,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.config = config
        self.registry = registry
        self.deadline = deadline
        self.replay_share = replay_share
        self.tell = tell
        self.transport = Transport(grid, timeout)

    def clients(self, history: History, in_service: History) -> Clients:
        return FlowerClients(self, history, in_service)

    def evaluate(self, history: History, public: GlobalParameters, users: Sequence[UserId]) -> FleetEvaluation:
        if self.config.server.secure:
            return self._evaluate_securely(history, public, users)
        round_ = history.last_round + 1
        orders = self.orders(history, history, {round_: users})
        contents = {node: messages.pack_order(order, None, public) for node, order in orders.items()}
        replies = self.transport.send(messages.EVALUATE, contents, str(round_))
        failures = self.failures(users, orders, replies)
        totals, count = np.zeros(len(METRICS)), 0
        for node, content in replies.contents.items():
            metrics = _metrics(content, len(orders[node].users))
            with suppress(MessageError):
                self.note(node, messages.unpack_notice(content, orders[node]), orders[node])
            if metrics is None:
                failures |= dict.fromkeys(orders[node].users, reasons.IMPOSSIBLE_METRICS)
            else:
                evaluated, sums = metrics
                totals, count = totals + sums, count + evaluated
        return _evaluation(count, totals, failures)

    def _evaluate_securely(
        self, history: History, public: GlobalParameters, users: Sequence[UserId]
    ) -> FleetEvaluation:
        """Evaluate a model on the devices; of their metrics only the sums are known."""
        from fedforget.flower.secure_exchange import Request, SecureExchange

        round_, size = history.last_round + 1, 1 + len(METRICS)
        request = Request(
            messages.EVALUATE,
            lambda order: messages.pack_order(order, None, public),
            {},
            public.digest,
            lambda round_: size,
        )
        sums = SecureExchange(self, history, history).run(request, {round_: users})
        failures = {user: reason for (_, user), reason in sums.failures.items()}
        if round_ not in sums.by_round:
            return _evaluation(0, np.zeros(len(METRICS)), failures)
        found = sums.by_round[round_]
        count, *totals = decode_fractions(found.words, found.devices)
        return _evaluation(round(count), np.minimum(totals, count), failures)

    def remove_items(self, history: History, public: GlobalParameters, users: Sequence[UserId]) -> None:
        round_ = history.last_round + 1
        orders = self.orders(history, history, {round_: users})
        contents = {node: messages.pack_order(order, RemoveItems(), public) for node, order in orders.items()}
        replies = self.transport.send(messages.RUN, contents, str(round_))
        for node, content in replies.contents.items():
            with suppress(MessageError):  # not confirmed, so it is asked again
                self.note(node, messages.unpack_notice(content, orders[node]), orders[node])

    def note(self, node: int, notice: Notice, order: Order) -> None:
        """Store what a device told besides its results."""
        if order.sizes:
            self.registry.set_known_items(node, min(notice.added_items, order.sizes[-1][1] - order.sizes[0][1]))
        if notice.requests and not order.branches:  # a device asks again after a replay
            self.registry.ask(notice.requests)
        if notice.erased:
            self.registry.confirm_removals(notice.erased)

    def wipe(self, orders: Sequence[WipeOrder]) -> list[WipeOrder]:
        number = self.registry.next_number()
        by_node: dict[int, list[WipeOrder]] = defaultdict(list)
        for order in orders:
            by_node[order.node].append(order)
        contents = {}
        for node, wipes in by_node.items():
            pseudonyms, salts = [order.pseudonym for order in wipes], [order.salt for order in wipes]
            task = ConfigRecord(
                {"federation": self.config.id, "number": number, "pseudonyms": pseudonyms, "salts": salts}
            )
            contents[node] = RecordDict({"task": task})
        replies = self.transport.send(messages.WIPE, contents, "wipe")
        confirmed = []
        for node, content in replies.contents.items():
            wiped = content.config_records.get("wiped", ConfigRecord()).get("pseudonyms")
            confirmed += [order for order in by_node[node] if isinstance(wiped, list) and order.pseudonym in wiped]
        return confirmed

    def orders(self, history: History, in_service: History, asked: Mapping[int, Sequence[UserId]]) -> dict[int, Order]:
        """The order to each node that hosts some of the users who are asked for these rounds."""
        rounds: dict[UserId, list[int]] = defaultdict(list)
        for round_, users in asked.items():
            for user in users:
                rounds[user].append(round_)
        nodes = self.registry.nodes_of(list(rounds))
        number = self.registry.next_number()
        hosted: dict[int, list[UserId]] = defaultdict(list)
        for user in rounds:
            if user in nodes:
                hosted[nodes[user]].append(user)
        orders = {}
        sizes, base = history.sizes(), history.base_size()
        known = self.registry.known_items(hosted) if len(sizes) > 1 else {}
        for node, node_users in hosted.items():
            first = min(rounds[user][0] for user in node_users)
            since = history.last_rounds(node_users, first)
            served = since
            if in_service is not history:
                served = in_service.last_rounds(node_users, in_service.last_round + 1)
            orders[node] = Order(
                self.config.id,
                number,
                history.lineage,
                in_service.lineage[-1][0],
                first,
                tuple(node_users),
                tuple(since),
                tuple(served),
                {**_factors(in_service, served), **_factors(history, since)},
                tuple(tuple(rounds[user]) for user in node_users),
                sizes if len(sizes) > 1 else (),
                tuple(history.catalogue.ids(known[node]))
                if known.get(node, sizes[-1][1]) < sizes[-1][1] - base
                else (),
                _numbers(history, node_users),
                _numbers(in_service, node_users),
            )
        return orders

    def failures(self, users: Sequence[UserId], orders: Mapping[int, Order], replies: Replies) -> dict[UserId, str]:
        """The reason for every user who has no node, or whose node did not reply."""
        reached = {user for order in orders.values() for user in order.users}
        failed = {user: reasons.NO_NODE for user in users if user not in reached}
        for node, reason in replies.missing.items():
            failed |= dict.fromkeys(orders[node].users, reason)
        return failed


@dataclass(frozen=True)
class FlowerClients:
    """Implements the server's ``Clients`` on one trajectory."""

    fleet: FlowerFleet
    history: History
    in_service: History

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> dict[int, CohortResult]:
        """Send a task to the users' nodes until enough of them have answered."""
        share = self.fleet.replay_share if self.history is not self.in_service else 0.0
        end, pause = time.monotonic() + self.fleet.deadline, FIRST_PAUSE
        expected = sum(len(users) for users in asked.values())
        while True:
            if self.fleet.config.server.secure:  # sums are only learned if enough have answered
                results, enough = self._ask_for_sums(task, asked, public, share * expected), 0.0
            else:
                results, enough = self._ask(task, asked, public), share * expected
            failures = [reason for result in results.values() for reason in result.failures.values()]
            answered = expected - sum(reason in reasons.TRANSIENT for reason in failures)
            if not expected or (answered >= enough and any(len(r.sent) for r in results.values())):
                return results
            problem = _too_few(asked, results)
            if answered == expected or time.monotonic() + pause > end:
                raise NoAnswerError(problem, "Nothing is stored. The round is asked for again when the server goes on.")
            self.fleet.tell(f"{problem} Asking again in {pause:.0f} s.")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _ask(self, task: Task, asked: Asked, public: GlobalParameters | None) -> dict[int, CohortResult]:
        """Send a task to the users' nodes once; stored updates come in the same reply."""
        fleet, model = self.fleet, self.fleet.config.model
        sizes, stored = (model.dim, model.update_layout.size), getattr(task, "stored", False)
        orders = fleet.orders(self.history, self.in_service, asked)
        sent = public if task.needs_parameters else None
        contents = {node: messages.pack_order(order, task, sent) for node, order in orders.items()}
        replies = fleet.transport.send(messages.RUN, contents, str(min(asked)))
        users = list(dict.fromkeys(user for cohort in asked.values() for user in cohort))
        failures = fleet.failures(users, orders, replies)
        parts = []
        for node, content in replies.contents.items():
            try:
                unpacked = messages.unpack_results(content, orders[node].asked, *sizes, stored)
                fleet.note(node, messages.unpack_notice(content, orders[node]), orders[node])
                parts.append(unpacked)
            except MessageError as error:
                failures |= dict.fromkeys(orders[node].users, error.problem)
        results = {}
        for round_, cohort in asked.items():
            round_parts = [part[round_] for part in parts if round_ in part]
            failed = {user: failures[user] for user in cohort if user in failures}
            for part in round_parts:
                failed |= part.failures
            past = [part.stored for part in round_parts if part.stored is not None]
            results[round_] = CohortResult(
                Updates.together([part.updates for part in round_parts], cohort) or Updates.none(*sizes),
                failed,
                (Updates.together(past, cohort) or Updates.none(*sizes)) if stored else None,
                max((part.seconds for part in round_parts), default=0.0),
                getattr(task, "epochs", 0),
            )
        return results

    def _ask_for_sums(
        self, task: Task, asked: Asked, public: GlobalParameters | None, required: float
    ) -> dict[int, CohortResult]:
        """Send a task to the users' nodes; only the sums of their updates are known, if at least so many arrive."""
        from fedforget.flower.secure_exchange import Request, SecureExchange

        config = self.fleet.config
        sent = public if task.needs_parameters else None
        copies = 2 if getattr(task, "stored", False) else 1

        def format_(round_: int, devices: int) -> SumFormat:
            n_items = self.history.size(round_) if sent is None else sent.items.shape[0]
            return SumFormat(n_items, config.model.dim, config.model.update_layout.size, config.bounds, devices)

        request = Request(
            messages.RUN,
            lambda order: messages.pack_order(order, task, sent),
            task.settings(),
            "" if sent is None else sent.digest,
            lambda round_: copies * format_(round_, 1).size,
            required,
        )
        sums = SecureExchange(self.fleet, self.history, self.in_service).run(request, asked)
        results = {}
        for round_, cohort in asked.items():
            failed = {user: sums.failures[round_, user] for user in cohort if (round_, user) in sums.failures}
            found = sums.by_round.get(round_)
            result = CohortResult(Updates.none(), failed, seconds=sums.seconds, epochs=getattr(task, "epochs", 0))
            if found is not None:
                present = set(found.users)
                users = [user for user in cohort if user in present]
                totals = [
                    format_(round_, found.devices).decode(words, users) for words in np.split(found.words, copies)
                ]
                result = replace(result, total=totals[0], stored_total=totals[1] if copies > 1 else None)
            results[round_] = result
        return results

    def apply_factors(self, round_: int, factors: Factors) -> None:
        """Store the factors: each device gets them with its next message."""
        FactorsFolder(self.history.folder).put(round_, factors)


def _too_few(asked: Asked, results: Mapping[int, CohortResult]) -> str:
    """Why a step cannot go on, in words. A device counts once, for however many rounds it was asked."""
    devices = {user for users in asked.values() for user in users}
    failures = {each for result in results.values() for each in result.failures.items()}
    answered = len(devices - {user for user, reason in failures if reason in reasons.TRANSIENT})
    lacking = "too few to go on" if answered < len(devices) else "without a valid update"
    counts = ", ".join(f"{count} × {reason}" for reason, count in Counter(reason for _, reason in failures).items())
    return f"Round {min(asked)}: {answered} of {len(devices)} devices answered, {lacking} ({counts})."


def _factors(history: History, rounds: Sequence[int]) -> dict[tuple[str, int], Factors]:
    """The factors of the rounds in which the server calibrated, by trajectory and round."""
    folder, trajectory = FactorsFolder(history.folder), history.lineage[-1][0]
    factors = {(trajectory, round_): folder.get(round_) for round_ in sorted(set(rounds))}
    return {key: value for key, value in factors.items() if value is not None}


def _numbers(history: History, users: Sequence[UserId]) -> tuple[int, ...]:
    """The last request to forget items that a trajectory is without, for each user; empty if nobody has one."""
    numbers = history.membership.erased(users)
    return tuple(numbers) if any(numbers) else ()


def _evaluation(count: int, totals: NDArray[np.float64], failures: Mapping[UserId, str]) -> FleetEvaluation:
    """The means of metrics, from their sums."""
    overall = (totals / max(count, 1)).tolist()
    sampled = dict(zip(SAMPLED, overall[: len(SAMPLED)], strict=True))
    full = dict(zip(FULL, overall[len(SAMPLED) :], strict=True))
    return FleetEvaluation(K, count, sampled, full, failures)


def _metrics(content: RecordDict, max_users: int) -> tuple[int, NDArray[np.float64]] | None:
    """The number of users that a device evaluated and the sums of their metrics; None if these are impossible."""
    record = content.metric_records.get("evaluation", MetricRecord())
    count = record.get("users")
    values = [record.get(name) for name in METRICS]
    if type(count) is not int or not 0 <= count <= max_users or any(type(value) is not float for value in values):
        return None
    sums = np.array(values, np.float64)
    return (count, sums) if ((sums >= 0) & (sums <= count + 1e-9)).all() else None
