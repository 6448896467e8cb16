"""Post: messages to nodes and their replies, within a time-out."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

SEAL = "seal"
#: So many seconds after the time is over, replies that are being fetched are given up.
GRACE = 1.0
#: Replies by node, None for one that cannot be read; None at the end.
Arrivals = SimpleQueue[tuple[int, Message | None] | None]
#: Why there is no reply.
OFFLINE = "its device was not connected"
LATE = "its device did not answer in time"
UNSENT = "the message to its device could not be sent"
FAILED = "its device could not carry out the task"
LOST = "its device was lost while it was at it"
FORGED = "the answer was not to the message that its device was sent"
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
    matched by the message that they answer, since errors made on the way say nothing of their sender. The SuperLink
    lets any registered node reply to a message whose id it knows, so each has a random number in it that only its
    addressee gets to see: it makes the id, a hash of the content, impossible to guess, and must come back.
    """

    def __init__(self, grid: Grid, timeout: float, poll: float = 0.2, patience: float = math.inf) -> None:
        self.grid = grid
        self.timeout = timeout
        self.poll = poll
        self.patience = patience

    def send(self, kind: str, contents: Mapping[int, RecordDict], group: str) -> Replies:
        """Send messages of one kind and wait for the replies."""
        online = set(self.grid.get_node_ids())
        missing = {node: OFFLINE for node in contents if node not in online}
        nodes = [node for node in contents if node in online]
        seals = {node: secrets.token_bytes(16) for node in nodes}
        messages = [self._message(kind, contents[node], node, group, seals[node]) for node in nodes]
        ids = list(self.grid.push_messages(messages)) if messages else []
        waiting = {message: node for message, node in zip(ids, nodes, strict=False) if message}
        missing |= {node: UNSENT for node in nodes if node not in waiting.values()}
        replies: dict[int, RecordDict] = {}
        for node, reply in self._arriving(waiting):
            found = _content(reply, seals[node])
            if isinstance(found, RecordDict):
                replies[node] = found
            else:
                missing[node] = found
        missing |= {node: LATE for node in waiting.values() if node not in replies and node not in missing}
        return Replies(replies, missing)

    def wait_for_any(self, nodes: Collection[int]) -> None:
        """Wait until one of these nodes is connected: a round that nobody can take part in would be wasted."""
        deadline = time.monotonic() + self.patience
        while nodes and not set(nodes) & set(self.grid.get_node_ids()) and time.monotonic() < deadline:
            time.sleep(self.poll)

    def _arriving(self, waiting: Mapping[str, int]) -> Iterator[tuple[int, Message | None]]:
        """The replies as they arrive, until all are there or the time is over; None for one that cannot be read.

        Another thread fetches them: Flower waits for hours for the rest of a reply that a node has begun to send.
        """
        arrived: Arrivals = SimpleQueue()
        deadline = time.monotonic() + self.timeout
        Thread(target=self._fetch, args=(dict(waiting), arrived, deadline), daemon=True).start()
        while True:
            try:
                found = arrived.get(timeout=max(0.0, deadline - time.monotonic()) + GRACE)
            except Empty:
                return
            if found is None:
                return
            yield found

    def _fetch(self, waiting: dict[str, int], arrived: Arrivals, deadline: float) -> None:
        """Ask for each reply by itself, so that one that cannot be read does not take others along."""
        over = False
        while waiting and not over:
            over = time.monotonic() >= deadline
            for message, node in list(waiting.items()):
                found: list[Message | None]
                try:
                    pulled = self.grid.pull_messages([message])
                    found = [reply for reply in pulled if reply.metadata.reply_to_message_id == message]
                except Exception:  # whatever a node has made of it
                    found = [None]
                if found:
                    arrived.put((node, found[0]))
                    del waiting[message]
            if waiting and not over:
                time.sleep(max(0.0, min(self.poll, deadline - time.monotonic())))
        arrived.put(None)

    def _message(self, kind: str, content: RecordDict, node: int, group: str, seal: bytes) -> Message:
        content[SEAL] = ConfigRecord({SEAL: seal})
        return Message(content, dst_node_id=node, message_type=kind, ttl=self.timeout, group_id=group)


def _content(reply: Message | None, seal: bytes) -> RecordDict | str:
    """What a node replied, or why it cannot be used."""
    if reply is None:
        return FAILED
    if reply.has_error():
        return ERRORS.get(reply.error.code, FAILED)
    content: object = reply.content
    if not isinstance(content, RecordDict) or seal_of(content) != seal:
        return FORGED
    return content


def sealed_reply(message: Message, content: RecordDict) -> Message:
    """A reply that shows that the message was seen."""
    content[SEAL] = ConfigRecord({SEAL: seal_of(message.content)})
    return Message(content, reply_to=message)


def seal_of(content: RecordDict) -> bytes:
    """The random number in a message; nothing if there is none."""
    seal = content.config_records.get(SEAL, ConfigRecord()).get(SEAL)
    return seal if isinstance(seal, bytes) else b""
