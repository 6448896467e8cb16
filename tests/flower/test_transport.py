"""Transport: every node is a reply or a reason, whatever becomes of its message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from fedforget.flower.transport import SEAL, Transport, seal_of, sealed_reply
from fedforget.protocol import reasons

#: What comes back for a message: replies, or errors.
Answer = Callable[[Message], list[Message]]


@pytest.fixture(autouse=True)
def of_a_run():
    """Flower wants to know whose messages these are."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def content(word: str) -> RecordDict:
    return RecordDict({"said": ConfigRecord({"word": word})})


def echo(message: Message) -> list[Message]:
    return [sealed_reply(message, RecordDict({"said": message.content["said"]}))]


def error(code: int) -> Answer:
    return lambda message: [Message(Error(code, "why"), reply_to=message)]


class FakeGrid:
    """Nodes that answer as they are told, some of them only at the second or a later look."""

    def __init__(self, answers: dict[int, Answer], online: Iterable[int] | None = None) -> None:
        self.answers = answers
        self.online = list(answers if online is None else online)
        self.unsent: set[int] = set()
        self.looks_until: dict[int, int] = {}
        self.pushed: list[Message] = []
        self.looks = 0

    def get_node_ids(self) -> Iterable[int]:
        return iter(self.online)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"to-{node}"
            self.pushed.append(message)
            yield None if node in self.unsent else f"to-{node}"

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.looks += 1
        wanted = set(message_ids)
        for message in self.pushed:
            node = message.metadata.dst_node_id
            if message.metadata.message_id in wanted and self.looks >= self.looks_until.get(node, 1):
                yield from self.answers[node](message)


def send(grid: FakeGrid, words: dict[int, str], timeout: float = 5.0) -> tuple[dict[int, str], dict[int, str]]:
    """What each node said, and why the others said nothing."""
    transport = Transport(grid, timeout, poll=0.001)
    replies = transport.send("train.run", {node: content(word) for node, word in words.items()}, "7")
    said = {node: reply.config_records["said"]["word"] for node, reply in replies.contents.items()}
    return said, dict(replies.missing)


def test_every_node_gets_its_own_message_and_its_reply_comes_back():
    grid = FakeGrid({1: echo, 2: echo, 3: echo})
    assert send(grid, {1: "one", 3: "three"}) == ({1: "one", 3: "three"}, {})
    assert [message.metadata.dst_node_id for message in grid.pushed] == [1, 3]
    assert {message.metadata.message_type for message in grid.pushed} == {"train.run"}
    assert {message.metadata.group_id for message in grid.pushed} == {"7"}


def test_messages_live_no_longer_than_the_time_out():
    grid = FakeGrid({1: echo})
    send(grid, {1: "one"}, timeout=3.5)
    assert grid.pushed[0].metadata.ttl == 3.5


def test_nothing_is_sent_when_there_is_nobody_to_send_it_to():
    grid = FakeGrid({1: echo})
    assert send(grid, {}) == ({}, {})
    assert grid.pushed == []
    assert grid.looks == 0


def test_nodes_that_are_not_connected_are_not_written_to():
    grid = FakeGrid({1: echo, 2: echo}, online=[2, 9])
    assert send(grid, {1: "one", 2: "two"}) == ({2: "two"}, {1: reasons.NOT_CONNECTED})
    assert [message.metadata.dst_node_id for message in grid.pushed] == [2]


def test_when_all_are_offline_nobody_waits():
    started = time.monotonic()
    assert send(FakeGrid({1: echo}, online=[]), {1: "one"}, timeout=60) == ({}, {1: reasons.NOT_CONNECTED})
    assert time.monotonic() - started < 5


def test_a_reply_that_takes_a_few_looks_is_in_time():
    grid = FakeGrid({1: echo, 2: echo})
    grid.looks_until[2] = 4
    assert send(grid, {1: "one", 2: "two"}) == ({1: "one", 2: "two"}, {})
    assert grid.looks == 4


def test_who_has_not_answered_when_the_time_is_over_is_late_and_the_others_count():
    grid = FakeGrid({1: echo, 2: lambda message: [], 3: echo})
    grid.looks_until[3] = 10**9
    started = time.monotonic()
    assert send(grid, {1: "one", 2: "two", 3: "three"}, timeout=0.05) == (
        {1: "one"},
        {2: reasons.LATE, 3: reasons.LATE},
    )
    assert 0.05 <= time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.UNKNOWN, reasons.FAILED),
        (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, reasons.FAILED),
        (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reasons.FAILED),
        (ErrorCode.MESSAGE_UNAVAILABLE, reasons.NOT_CONNECTED),
        (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, reasons.LOST),
        (ErrorCode.NODE_UNAVAILABLE, reasons.LOST),
        (ErrorCode.MOD_FAILED_PRECONDITION, reasons.FAILED),
        (ErrorCode.INVALID_FAB, reasons.FAILED),
        (ErrorCode.CLIENT_APP_CRASHED, reasons.LOST),
        (12345, reasons.FAILED),
    ],
)
def test_an_error_is_a_reason_by_its_code_and_does_not_touch_the_others(code, reason):
    grid = FakeGrid({1: error(code), 2: echo})
    assert send(grid, {1: "one", 2: "two"}) == ({2: "two"}, {1: reason})


def test_replies_to_other_messages_are_ignored():
    def to_another(message: Message) -> list[Message]:
        (stray,) = echo(message)
        stray.metadata.__dict__["_reply_to_message_id"] = "to-somebody-else"
        return [stray]

    grid = FakeGrid({1: lambda message: to_another(message) + echo(message), 2: to_another})
    assert send(grid, {1: "one", 2: "two"}, timeout=0.05) == ({1: "one"}, {2: reasons.LATE})


def test_of_two_replies_to_one_message_the_first_counts():
    def twice(message: Message) -> list[Message]:
        return [sealed_reply(message, content("first")), sealed_reply(message, content("second"))]

    def error_first(message: Message) -> list[Message]:
        return error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION)(message) + echo(message)

    assert send(FakeGrid({1: twice, 2: error_first}), {1: "one", 2: "two"}) == ({1: "first"}, {2: reasons.FAILED})


def with_seal(seal: object) -> Answer:
    """A reply by someone who did not see the message."""

    def reply(message: Message) -> list[Message]:
        forged = content("forged")
        if seal is not None:
            forged[SEAL] = ConfigRecord({SEAL: seal})
        return [Message(forged, reply_to=message)]

    return reply


@pytest.mark.parametrize("seal", [None, b"", bytes(16), "text", 5, [b"x"]], ids=repr)
def test_a_reply_without_the_number_that_was_sent_is_forged(seal):
    grid = FakeGrid({1: with_seal(seal), 2: echo})
    assert send(grid, {1: "one", 2: "two"}) == ({2: "two"}, {1: reasons.FORGED})


def test_a_reply_with_the_number_that_another_node_was_sent_is_forged():
    def with_that_of_2(message: Message) -> list[Message]:
        return with_seal(seal_of(grid.pushed[1].content))(message)

    grid = FakeGrid({1: with_that_of_2, 2: echo})
    assert send(grid, {1: "one", 2: "two"}) == ({2: "two"}, {1: reasons.FORGED})


def test_no_two_messages_have_the_same_number_even_if_they_say_the_same():
    grid = FakeGrid({1: echo, 2: echo})
    for _ in range(2):
        send(grid, {1: "same", 2: "same"})
    seals = {seal_of(message.content) for message in grid.pushed}
    assert len(seals) == 4
    assert {len(seal) for seal in seals} == {16}


def test_a_message_that_could_not_be_sent_is_not_waited_for():
    grid = FakeGrid({1: echo, 2: echo, 3: echo})
    grid.unsent = {1, 3}
    started = time.monotonic()
    assert send(grid, {1: "one", 2: "two", 3: "three"}, timeout=60) == (
        {2: "two"},
        {1: reasons.UNSENT, 3: reasons.UNSENT},
    )
    assert time.monotonic() - started < 5


def test_fewer_ids_than_messages_are_messages_that_could_not_be_sent():
    class Forgetful(FakeGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
            return list(super().push_messages(messages))[:1]

    assert send(Forgetful({1: echo, 2: echo}), {1: "one", 2: "two"}) == ({1: "one"}, {2: reasons.UNSENT})


def test_every_node_is_either_a_reply_or_a_reason():
    everything: dict[int, Answer] = {
        1: echo,
        2: echo,
        3: error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION),
        4: lambda message: [],
        5: echo,
    }
    grid = FakeGrid(everything, online=[1, 3, 4, 5])
    grid.unsent = {5}
    said, missing = send(grid, {node: str(node) for node in range(1, 7)}, timeout=0.05)
    assert said == {1: "1"}
    assert missing == {
        2: reasons.NOT_CONNECTED,
        3: reasons.FAILED,
        4: reasons.LATE,
        5: reasons.UNSENT,
        6: reasons.NOT_CONNECTED,
    }


def test_a_reply_that_came_while_the_last_sleep_lasted_is_in_time():
    grid = FakeGrid({1: echo})
    grid.looks_until[1] = 2
    replies = Transport(grid, timeout=0.05, poll=0.1).send("train.run", {1: content("one")}, "7")
    assert list(replies.contents) == [1]
