"""Transport: one message to each node and its reply, within a time-out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedforget.protocol import reasons

SEAL = "seal"
#: Seconds after the time-out in which replies that are being fetched may still arrive.
GRACE = 1.0
#: A node and its reply, which is None if it cannot be read; None at the end.
Arrivals = SimpleQueue[tuple[int, Message | None] | None]
#: Reasons for Flower's error codes.
ERRORS = {
    1: reasons.FAILED,
    2: reasons.FAILED,
    3: reasons.NOT_CONNECTED,
    4: reasons.LOST,
    5: reasons.LOST,
    8: reasons.LOST,
}


@dataclass(frozen=True)
class Replies:
    """Replies by node, and the reason for every node without one."""

    contents: Mapping[int, RecordDict]
    missing: Mapping[int, str]


class Transport:
    """Sends one message to each node and collects the replies until the time-out (seconds).

    Replies are fetched every ``poll`` seconds.

    Messages expire with the time-out, so that a node that reconnects later does not get old ones. Replies are matched
    by the id of the message, since error replies do not name their sender. The SuperLink lets any registered node reply
    to a message whose id it knows; therefore each message has a random seal that only its receiver sees. The seal makes
    the id (a hash of the content) impossible to guess and must be in the reply.
    """

    def __init__(self, grid: Grid, timeout: float, poll: float = 0.2) -> None:
        self.grid = grid
        self.timeout = timeout
        self.poll = poll

    def send(self, kind: str, contents: Mapping[int, RecordDict], group: str) -> Replies:
        """Send messages of one type and wait for the replies."""
        online = set(self.grid.get_node_ids())
        missing = {node: reasons.NOT_CONNECTED for node in contents if node not in online}
        nodes = [node for node in contents if node in online]
        seals = {node: secrets.token_bytes(16) for node in nodes}
        messages = []
        for node in nodes:
            sealed = RecordDict({**contents[node], SEAL: ConfigRecord({SEAL: seals[node]})})
            messages.append(Message(sealed, dst_node_id=node, message_type=kind, ttl=self.timeout, group_id=group))
        ids = list(self.grid.push_messages(messages)) if messages else []
        waiting = {message: node for message, node in zip(ids, nodes, strict=False) if message}
        missing |= {node: reasons.UNSENT for node in nodes if node not in waiting.values()}
        replies: dict[int, RecordDict] = {}
        for node, reply in self._arriving(waiting):
            content = _content(reply, seals[node])
            if isinstance(content, RecordDict):
                replies[node] = content
            else:
                missing[node] = content
        missing |= {node: reasons.LATE for node in waiting.values() if node not in replies and node not in missing}
        return Replies(replies, missing)

    def _arriving(self, waiting: Mapping[str, int]) -> Iterator[tuple[int, Message | None]]:
        """Yield replies as they arrive until the time-out; None for one that cannot be read.

        Another thread fetches them: Flower may wait for hours for the rest of a reply that a node has begun to send.
        """
        arrived: Arrivals = SimpleQueue()
        deadline = time.monotonic() + self.timeout
        Thread(target=self._fetch, args=(dict(waiting), arrived, deadline), daemon=True).start()
        with suppress(Empty):
            while (arrival := arrived.get(timeout=max(0.0, deadline - time.monotonic()) + GRACE)) is not None:
                yield arrival

    def _fetch(self, waiting: dict[str, int], arrived: Arrivals, deadline: float) -> None:
        """Fetch replies one by one, so that one that cannot be read does not affect the others."""
        over = False
        while waiting and not over:
            over = time.monotonic() >= deadline
            for message, node in list(waiting.items()):
                replies: list[Message | None]
                try:
                    pulled = self.grid.pull_messages([message])
                    replies = [reply for reply in pulled if reply.metadata.reply_to_message_id == message]
                except Exception:  # a malformed reply
                    replies = [None]
                if replies:
                    arrived.put((node, replies[0]))
                    del waiting[message]
            if waiting and not over:
                time.sleep(max(0.0, min(self.poll, deadline - time.monotonic())))
        arrived.put(None)


def _content(reply: Message | None, seal: bytes) -> RecordDict | str:
    """The content of a reply, or the reason why it is rejected."""
    if reply is None:
        return reasons.FAILED
    if reply.has_error():
        return ERRORS.get(reply.error.code, reasons.FAILED)
    content: object = reply.content
    if not isinstance(content, RecordDict) or seal_of(content) != seal:
        return reasons.FORGED
    return content


def sealed_reply(message: Message, content: RecordDict) -> Message:
    """A reply with the seal of its message."""
    content[SEAL] = ConfigRecord({SEAL: seal_of(message.content)})
    return Message(content, reply_to=message)


def seal_of(content: RecordDict) -> bytes:
    """The seal of a message; empty if there is none."""
    seal = content.config_records.get(SEAL, ConfigRecord()).get(SEAL)
    return seal if isinstance(seal, bytes) else b""
