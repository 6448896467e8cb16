"""FlowerFleet: the server's ``Fleet`` and ``Clients`` on a Flower network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedforget.flower import messages
from fedforget.flower.arrays import MessageError
from fedforget.flower.transport import Replies, Transport
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.factors import Factors
from fedforget.protocol.metrics import FULL, SAMPLED, K
from fedforget.protocol.order import Order
from fedforget.protocol.tasks import Asked, Task
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.factors import FactorsFolder
from fedforget.server.fleet import FleetEvaluation
from fedforget.server.history import History
from fedforget.server.registry import Registry, WipeOrder
from fedforget.server.run_config import RunConfig


class FlowerFleet:
    """The devices of a federation; each node gets one message for all of its users."""

    def __init__(
        self, grid: Grid, settings: RunConfig, registry: Registry, timeout: float, patience: float = math.inf
    ) -> None:
        self.config = settings
        self.registry = registry
        self.transport = Transport(grid, timeout, patience=patience)

    def clients(self, history: History, in_service: History) -> Clients:
        """The devices on the trajectory of a history, while that of another (or the same) is in service."""
        return FlowerClients(self, history, in_service)

    def evaluate(self, history: History, public: GlobalParameters, users: Sequence[UserId]) -> FleetEvaluation:
        """Let devices evaluate a model on their test items; the mean over their users."""
        round_ = history.last_round + 1
        orders = self.orders(history, history, {round_: users})
        contents = {node: messages.pack_order(order, None, public) for node, order in orders.items()}
        replies = self.transport.send(messages.EVALUATE, contents, str(round_))
        failures = self.failures(users, orders, replies)
        totals, count = np.zeros(len(SAMPLED) + len(FULL)), 0
        for node, content in replies.contents.items():
            found = _metrics(content, len(orders[node].users))
            if found is None:
                failures |= dict.fromkeys(orders[node].users, reasons.IMPOSSIBLE_METRICS)
            else:
                totals, count = totals + found[0] * found[1], count + found[0]
        means = (totals / max(count, 1)).tolist()
        sampled, full = means[: len(SAMPLED)], means[len(SAMPLED) :]
        return FleetEvaluation(
            K, count, dict(zip(SAMPLED, sampled, strict=True)), dict(zip(FULL, full, strict=True)), failures
        )

    def wipe(self, orders: Sequence[WipeOrder]) -> list[WipeOrder]:
        """Let devices wipe forgotten users; the orders that were confirmed."""
        by_node: dict[int, list[WipeOrder]] = {}
        for order in orders:
            by_node.setdefault(order.node, []).append(order)
        contents = {}
        for node, given in by_node.items():
            task = {"pseudonyms": [order.pseudonym for order in given], "salts": [order.salt for order in given]}
            contents[node] = RecordDict({"task": ConfigRecord({"federation": self.config.id, **task})})
        replies = self.transport.send(messages.WIPE, contents, "wipe")
        confirmed = []
        for node, content in replies.contents.items():
            done = content.config_records.get("wiped", ConfigRecord()).get("pseudonyms", [])
            confirmed += [order for order in by_node[node] if isinstance(done, list) and order.pseudonym in done]
        return confirmed

    def orders(self, history: History, in_service: History, asked: Mapping[int, Sequence[UserId]]) -> dict[int, Order]:
        """The order to each node that has some of the users who are asked for these rounds."""
        rounds: dict[UserId, list[int]] = {}
        for number, users in asked.items():
            for user in users:
                rounds.setdefault(user, []).append(number)
        nodes = self.registry.nodes_of(list(rounds))
        number = self.registry.next_number()
        hosted: dict[int, list[UserId]] = {}
        for user in rounds:
            if user in nodes:
                hosted.setdefault(nodes[user], []).append(user)
        orders = {}
        for node, own in hosted.items():
            round_ = min(rounds[user][0] for user in own)
            since, served = history.last_rounds(own, round_), in_service.last_rounds(own, in_service.last_round + 1)
            if in_service is history:
                served = since
            factors = {**_factors(in_service, served), **_factors(history, since)}
            orders[node] = Order(
                self.config.id,
                number,
                history.lineage,
                in_service.lineage[-1][0],
                round_,
                tuple(own),
                tuple(since),
                tuple(served),
                factors,
                tuple(tuple(rounds[user]) for user in own),
            )
        return orders

    def failures(self, users: Sequence[UserId], orders: Mapping[int, Order], replies: Replies) -> dict[UserId, str]:
        """The reason for every user whose node did not reply, or who has none."""
        reached = {user for order in orders.values() for user in order.users}
        failed = {user: reasons.NO_NODE for user in users if user not in reached}
        for node, reason in replies.missing.items():
            failed |= dict.fromkeys(orders[node].users, reason)
        return failed


class FlowerClients:
    """Implements the server's ``Clients`` on one trajectory."""

    def __init__(self, fleet: FlowerFleet, history: History, in_service: History) -> None:
        self.fleet = fleet
        self.history = history
        self.in_service = in_service

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> dict[int, CohortResult]:
        """Send a task to the users' nodes; stored updates come in the same reply."""
        fleet, model = self.fleet, self.fleet.config.model
        dims, stored = (model.dim, model.update_layout.size), getattr(task, "stored", False)
        orders = fleet.orders(self.history, self.in_service, asked)
        sent = public if task.needs_parameters else None
        contents = {node: messages.pack_order(order, task, sent) for node, order in orders.items()}
        fleet.transport.wait_for_any(contents)
        replies = fleet.transport.send(messages.RUN, contents, str(min(asked)))
        users = list(dict.fromkeys(user for those in asked.values() for user in those))
        failures = fleet.failures(users, orders, replies)
        parts = []
        for node, content in replies.contents.items():
            try:
                parts.append(messages.unpack_results(content, orders[node].asked, *dims, stored))
            except MessageError as error:
                failures |= dict.fromkeys(orders[node].users, error.problem)
        results = {}
        for round_, those in asked.items():
            own = [part[round_] for part in parts if round_ in part]
            results[round_] = replace(_joined(own, those, failures, dims, stored), epochs=getattr(task, "epochs", 0))
        return results

    def apply_factors(self, round_: int, factors: Factors) -> None:
        """Store the factors: each device gets them with its next message."""
        FactorsFolder(self.history.folder).put(round_, factors)


def _joined(
    parts: Sequence[CohortResult],
    users: Sequence[UserId],
    failures: Mapping[UserId, str],
    dims: tuple[int, int],
    stored: bool,
) -> CohortResult:
    """The results of several nodes for one round, their users in this order."""
    failed = {user: failures[user] for user in users if user in failures}
    for part in parts:
        failed |= part.failures
    past = Updates.together([part.stored for part in parts if part.stored is not None], users)
    return CohortResult(
        Updates.together([part.updates for part in parts], users) or Updates.none(*dims),
        failed,
        (past or Updates.none(*dims)) if stored else None,
        max((part.seconds for part in parts), default=0.0),
    )


def _factors(history: History, rounds: Sequence[int]) -> dict[tuple[str, int], Factors]:
    """The factors of those of these rounds in which the server calibrated."""
    folder, name = FactorsFolder(history.folder), history.lineage[-1][0]
    found = {(name, round_): folder.get(round_) for round_ in sorted(set(rounds))}
    return {key: factors for key, factors in found.items() if factors is not None}


def _metrics(content: RecordDict, most: int) -> tuple[int, np.ndarray[Any, np.dtype[np.float64]]] | None:
    """The number of users that a device evaluated and their means; None if they are impossible."""
    record = content.metric_records.get("evaluation", MetricRecord())
    count = record.get("users")
    names = [f"sampled_{name}" for name in SAMPLED] + [f"full_{name}" for name in FULL]
    values = [record.get(name) for name in names]
    if type(count) is not int or not 0 <= count <= most or any(type(value) is not float for value in values):
        return None
    means = np.array(values, np.float64)
    return (count, means) if ((means >= 0) & (means <= 1)).all() else None
