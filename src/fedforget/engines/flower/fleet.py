"""FlowerFleet: the server's ``Fleet`` and ``Clients`` on a Flower network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedforget.engines.flower import messages
from fedforget.engines.flower.arrays import MessageError
from fedforget.engines.flower.post import Post, Replies
from fedforget.evaluation import Ranking
from fedforget.evaluation.report import FULL, SAMPLED
from fedforget.models import Public
from fedforget.orders import Order
from fedforget.randomness import UserId
from fedforget.replay import Factors, Replay
from fedforget.server.clients import Clients
from fedforget.server.factors import FactorsFolder
from fedforget.server.fleet import Measured
from fedforget.server.history import History
from fedforget.server.registry import Registry, WipeOrder
from fedforget.settings import Settings
from fedforget.updates import Answers, Updates

NO_NODE = "no device is registered for it"


class FlowerFleet:
    """The devices of a federation, each node asked with one message for all of its users."""

    def __init__(
        self, grid: Grid, settings: Settings, registry: Registry, timeout: float, patience: float = math.inf
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.post = Post(grid, timeout, patience=patience)

    def clients(self, history: History, in_service: History) -> Clients:
        """The devices on the trajectory of a history, while that of another (or the same) is in service."""
        return FlowerClients(self, history, in_service)

    def measure(self, history: History, public: Public, users: Sequence[UserId]) -> Measured:
        """Let devices evaluate a model on what they have kept back; the mean over their users."""
        round_ = history.last_round + 1
        orders = self.orders(history, history, {round_: users})
        contents = {node: messages.pack_order(order, {}, public) for node, order in orders.items()}
        replies = self.post.send(messages.MEASURE, contents, str(round_))
        failures = self.failures(users, orders, replies)
        totals, count = np.zeros(len(SAMPLED) + len(FULL)), 0
        for node, content in replies.contents.items():
            found = _metrics(content, len(orders[node].users))
            if found is None:
                failures |= dict.fromkeys(orders[node].users, "its device measured what cannot be")
            else:
                totals, count = totals + found[0] * found[1], count + found[0]
        means = (totals / max(count, 1)).tolist()
        sampled, full = means[: len(SAMPLED)], means[len(SAMPLED) :]
        return Measured(
            Ranking().k, count, dict(zip(SAMPLED, sampled, strict=True)), dict(zip(FULL, full, strict=True)), failures
        )

    def wipe(self, orders: Sequence[WipeOrder]) -> list[WipeOrder]:
        """Have devices wipe users who left; the orders that were confirmed."""
        by_node: dict[int, list[WipeOrder]] = {}
        for order in orders:
            by_node.setdefault(order.node, []).append(order)
        contents = {}
        for node, given in by_node.items():
            task = {"pseudonyms": [order.pseudonym for order in given], "salts": [order.salt for order in given]}
            contents[node] = RecordDict({"task": ConfigRecord({"federation": self.settings.id, **task})})
        replies = self.post.send(messages.WIPE, contents, "wipe")
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
                self.settings.id, number, history.lineage, in_service.lineage[-1][0], round_,
                tuple(own), tuple(since), tuple(served), factors, tuple(tuple(rounds[user]) for user in own),
            )  # fmt: skip
        return orders

    def failures(self, users: Sequence[UserId], orders: Mapping[int, Order], replies: Replies) -> dict[UserId, str]:
        """Of everyone whose node did not reply, or who has none: why."""
        reached = {user for order in orders.values() for user in order.users}
        reasons = {user: NO_NODE for user in users if user not in reached}
        for node, reason in replies.missing.items():
            reasons |= dict.fromkeys(orders[node].users, reason)
        return reasons


class FlowerClients:
    """Implements the server's ``Clients`` on one trajectory."""

    def __init__(self, fleet: FlowerFleet, history: History, in_service: History) -> None:
        self.fleet = fleet
        self.history = history
        self.in_service = in_service

    def train(self, round_: int, public: Public, users: Sequence[UserId], epochs: int) -> Answers:
        """Let these users train from ``public``."""
        return self._ask(messages.TRAIN, {round_: users}, {"epochs": epochs}, public, epochs)[round_]

    def replay(self, asked: Mapping[int, Sequence[UserId]], public: Public, how: Replay) -> dict[int, Answers]:
        """Let users go through past rounds again; what they have stored comes in the same message."""
        return self._ask(messages.REPLAY, asked, messages.pack_replay(how), public, how.epochs, stored=how.stored)

    def settle(self, round_: int, factors: Factors) -> None:
        """Keep the factors: each device is told with the next message that it gets."""
        FactorsFolder(self.history.folder).put(round_, factors)

    def recall(self, round_: int, users: Sequence[UserId], n_items: int) -> Answers:
        """Let these users return what their logs have for a past round."""
        return self._ask(messages.RECALL, {round_: users}, {"n_items": n_items}, None, 0)[round_]

    def _ask(
        self,
        kind: str,
        asked: Mapping[int, Sequence[UserId]],
        task: Mapping[str, Any],
        public: Public | None,
        epochs: int,
        stored: bool = False,
    ) -> dict[int, Answers]:
        fleet, model = self.fleet, self.fleet.settings.model
        dims = model.dim, model.update_layout.size
        orders = fleet.orders(self.history, self.in_service, asked)
        contents = {node: messages.pack_order(order, task, public) for node, order in orders.items()}
        fleet.post.wait_for_any(contents)
        replies = fleet.post.send(kind, contents, str(min(asked)))
        users = list(dict.fromkeys(user for those in asked.values() for user in those))
        failures = fleet.failures(users, orders, replies)
        parts = []
        for node, content in replies.contents.items():
            try:
                parts.append(messages.unpack_answers(content, orders[node].asked, *dims, stored))
            except MessageError as error:
                failures |= dict.fromkeys(orders[node].users, error.problem)
        return {
            round_: replace(_joined([part[round_] for part in parts if round_ in part], those, failures, dims, stored),
                            epochs=epochs)
            for round_, those in asked.items()
        }  # fmt: skip


def _joined(
    parts: Sequence[Answers], users: Sequence[UserId], failures: Mapping[UserId, str], dims: tuple[int, int],
    stored: bool,
) -> Answers:  # fmt: skip
    """The answers of several nodes for one round, their users in this order."""
    reasons = {user: failures[user] for user in users if user in failures}
    for part in parts:
        reasons |= part.failures
    past = Updates.together([part.stored for part in parts if part.stored is not None], users)
    return Answers(
        Updates.together([part.updates for part in parts], users) or Updates.none(*dims),
        reasons,
        (past or Updates.none(*dims)) if stored else None,
        max((part.seconds for part in parts), default=0.0),
    )


def _factors(history: History, rounds: Sequence[int]) -> dict[tuple[str, int], Factors]:
    """The factors of those of these rounds in which the server calibrated."""
    folder, name = FactorsFolder(history.folder), history.lineage[-1][0]
    found = {(name, round_): folder.get(round_) for round_ in sorted(set(rounds))}
    return {key: factors for key, factors in found.items() if factors is not None}


def _metrics(content: RecordDict, most: int) -> tuple[int, np.ndarray[Any, np.dtype[np.float64]]] | None:
    """How many users a device measured, and its means; None if they cannot be."""
    record = content.metric_records.get("measured", MetricRecord())
    count = record.get("users")
    names = [f"sampled_{name}" for name in SAMPLED] + [f"full_{name}" for name in FULL]
    values = [record.get(name) for name in names]
    if type(count) is not int or not 0 <= count <= most or any(type(value) is not float for value in values):
        return None
    means = np.array(values, np.float64)
    return (count, means) if ((means >= 0) & (means <= 1)).all() else None
