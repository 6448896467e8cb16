"""A Flower network without a network: a grid that calls the client app directly, and can lose or change messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedforget.flower.client_app import app

RAISED = 2
#: What becomes of a message to a node, given as (node, message, how to deliver it): its replies.
Fault = Callable[[int, Message, Callable[[Message], Message]], list[Message]]


class InProcessGrid(Grid):
    """Each node is a folder of users' files. ``online`` says who is connected; ``fault`` may interfere."""

    def __init__(self, states: dict[int, Path]) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.states = states
        self.online = set(states)
        self.fault: Fault | None = None
        self.delivered: list[tuple[int, Message]] = []
        self._replies: list[Message] = []
        self._sent = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self._sent += 1
            message.metadata.__dict__["_message_id"] = f"message-{self._sent}"
            node = message.metadata.dst_node_id
            deliver = self.deliver if self.fault is None else self._faulty
            replies = deliver(message)
            self._replies += replies if isinstance(replies, list) else [replies]
            ids.append(message.metadata.message_id)
            self.delivered.append((node, message))
        return ids

    def deliver(self, message: Message) -> Message:
        """What the node of a message answers."""
        node = message.metadata.dst_node_id
        context = Context(1, node, {"state": str(self.states[node])}, RecordDict(), {})
        try:
            return app(message, context)
        except Exception as error:  # as a SuperNode does
            return Message(Error(RAISED, repr(error)), reply_to=message)

    def _faulty(self, message: Message) -> list[Message]:
        assert self.fault is not None
        return self.fault(message.metadata.dst_node_id, message, self.deliver)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        found = [reply for reply in self._replies if reply.metadata.reply_to_message_id in wanted]
        self._replies = [reply for reply in self._replies if reply not in found]
        return found

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.online)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError
