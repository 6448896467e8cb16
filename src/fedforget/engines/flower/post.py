"""Post: messages to nodes and their replies, within a time-out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

#: Why there is no reply.
OFFLINE = "its device was not connected"
LATE = "its device did not answer in time"
UNSENT = "the message to its device could not be sent"
FAILED = "its device could not carry out the task"
LOST = "its device was lost while it was at it"
#: Flower's error codes: a client app that could not be loaded, raised or crashed; a message or node that is gone.
ERRORS = {1: FAILED, 2: FAILED, 3: OFFLINE, 4: LOST, 5: LOST, 8: LOST}


@dataclass(frozen=True)
class Replies:
    """What came back, by node, and the reason for every node that did not reply."""

    contents: Mapping[int, RecordDict]
    missing: Mapping[int, str]


class Post:
    """One message to each node, and whatever has come back when the time is over.

    Messages live no longer than the time-out: a node that comes back later does not find those it missed. Replies are
    matched by the message that they answer, since errors made on the way say nothing of their sender.
    """

    def __init__(self, grid: Grid, timeout: float, poll: float = 0.2) -> None:
        self.grid = grid
        self.timeout = timeout
        self.poll = poll

    def send(self, kind: str, contents: Mapping[int, RecordDict], group: str) -> Replies:
        """Send messages of one kind and wait for the replies."""
        online = set(self.grid.get_node_ids())
        missing = {node: OFFLINE for node in contents if node not in online}
        nodes = [node for node in contents if node in online]
        messages = [
            Message(contents[node], dst_node_id=node, message_type=kind, ttl=self.timeout, group_id=group)
            for node in nodes
        ]
        ids = list(self.grid.push_messages(messages)) if messages else []
        waiting = {message: node for message, node in zip(ids, nodes, strict=False) if message}
        missing |= {node: UNSENT for node in nodes if node not in waiting.values()}
        replies: dict[int, RecordDict] = {}
        deadline = time.monotonic() + self.timeout
        while waiting and time.monotonic() < deadline:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if reply.has_error():
                    missing[node] = ERRORS.get(reply.error.code, FAILED)
                else:
                    replies[node] = reply.content
            if waiting:
                time.sleep(self.poll)
        missing |= dict.fromkeys(waiting.values(), LATE)
        return Replies(replies, missing)
