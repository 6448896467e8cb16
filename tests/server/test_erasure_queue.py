"""The queue of requests: the oldest first, and of one that is done nothing stays."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fedforget.errors import RunWarning
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest

METHOD = {"name": "replay", "epochs": 2}


def made(*users: int | str) -> ErasureRequest:
    return ErasureRequest.new(users, METHOD, 0.5)


def on_disk(run: Path) -> bytes:
    """Every byte below a folder, and the names of its files."""
    return b"".join(path.name.encode() + path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file())


@pytest.fixture
def queue(tmp_path) -> ErasureQueue:
    return ErasureQueue(tmp_path)


def test_looking_into_an_empty_queue_finds_and_makes_nothing(queue, tmp_path):
    assert queue.waiting() == []
    assert queue.refused() == {}
    queue.remove("0123")
    assert list(tmp_path.iterdir()) == []


def test_requests_wait_in_the_order_of_time_whatever_their_ids(queue, monkeypatch):
    requests = {at: made(at) for at in (300, 5, 10**18, 2 * 10**18, 40)}
    for at, request in requests.items():
        monkeypatch.setattr(time, "time_ns", lambda at=at: at)
        queue.add(request)
    assert queue.waiting() == [requests[at] for at in sorted(requests)]


def test_two_requests_of_the_same_moment_both_wait(queue, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 7)
    first, second = made("ann"), made("bob")
    queue.add(first)
    queue.add(second)
    assert {request.id for request in queue.waiting()} == {first.id, second.id}


@pytest.mark.parametrize("users", [(1, 2**63 - 1, -5), ("ann", "5", "Zoë", 'a "quoted" one\n')])
def test_a_request_comes_back_as_it_was_also_to_another_process(queue, tmp_path, users):
    request = made(*users)
    queue.add(request)
    assert ErasureQueue(tmp_path).waiting() == [request]


def test_a_request_that_is_done_leaves_nothing_of_its_users(queue, tmp_path):
    done, waits = made("somebody-who-left"), made("somebody-else")
    queue.add(done)
    queue.add(waits)
    queue.remove(done.id)
    queue.remove(done.id)
    assert queue.waiting() == [waits]
    left = on_disk(tmp_path)
    assert b"somebody-who-left" not in left
    assert done.id.encode() not in left
    assert done.salt.encode() not in left


def test_a_request_added_twice_is_removed_whole(queue, tmp_path):
    request = made("somebody-who-left")
    queue.add(request)
    time.sleep(0.001)
    queue.add(request)
    queue.remove(request.id)
    assert queue.waiting() == []
    assert on_disk(tmp_path) == b""


def test_a_refused_request_no_longer_waits_and_only_the_reason_is_kept(queue, tmp_path):
    refused, waits = made("somebody"), made("somebody-else")
    queue.add(refused)
    queue.add(waits)
    queue.refuse(refused.id, "Too few devices answered: 3 of 10 — ask again.")
    assert queue.waiting() == [waits]
    assert ErasureQueue(tmp_path).refused() == {refused.id: "Too few devices answered: 3 of 10 — ask again."}
    assert [path.name for path in queue.folder.glob("*.refused")] == [f"{refused.id}.refused"]
    assert refused.salt.encode() not in on_disk(tmp_path)


def test_a_request_can_be_refused_that_never_waited_and_again_for_another_reason(queue):
    queue.refuse("0123", "first")
    queue.refuse("0123", "second")
    assert queue.refused() == {"0123": "second"}
    assert queue.waiting() == []


def test_what_a_crash_left_half_written_is_ignored(queue):
    request = made("ann")
    queue.add(request)
    whole = next(queue.folder.glob("*.json")).read_bytes()
    (queue.folder / ".00000000000000000001-abcd.json.part").write_bytes(whole[:20])
    (queue.folder / ".00000000000000000002-ef01.json.part").write_bytes(whole)
    (queue.folder / ".abcd.refused.part").write_bytes(b"Too f")
    assert queue.waiting() == [request]
    assert queue.refused() == {}


def test_a_damaged_request_is_named_and_passed_over(queue):
    queue.add(made("ann"))
    (path,) = queue.folder.glob("*.json")
    for damage in (b"", path.read_bytes()[:20], b"[]", b"{}", b'{"users": [], "id": "x"}', b"\xff\xfe"):
        path.write_bytes(damage)
        with pytest.warns(RunWarning, match=rf"{path.name} cannot be read.*ask again"):
            assert queue.waiting() == []


def test_a_file_is_readable_json_for_an_operator(queue):
    request = made("ann")
    queue.add(request)
    (path,) = queue.folder.glob("*.json")
    assert json.loads(path.read_text(encoding="utf-8"))["users"] == ["ann"]
    assert path.name.endswith(f"-{request.id}.json")


def test_what_a_crash_left_half_written_does_not_outlive_the_users_it_names(queue, tmp_path):
    first, again = made("somebody-who-left"), made("somebody-who-left")
    queue.add(first)
    (path,) = queue.folder.glob("*.json")
    part = path.rename(path.with_name(f".{path.name}.part"))
    os.utime(part, (0, 0))
    queue.add(again)
    queue.remove(again.id)
    assert b"somebody-who-left" not in on_disk(tmp_path)


@pytest.mark.parametrize("asked_again", [False, True])
def test_of_a_request_that_is_done_no_half_written_file_remains(queue, tmp_path, asked_again):
    done, waits = made("somebody-who-left"), made("somebody-else")
    queue.add(done)
    (path,) = queue.folder.glob("*.json")
    path.rename(path.with_name(f".{path.name}.part"))
    if asked_again:
        queue.add(done)
    queue.add(waits)
    (queue.folder / f".{done.id}.refused.part").write_bytes(b"somebody-who-left is")
    queue.remove(done.id)
    queue.forget_refusal(done.id)
    assert queue.waiting() == [waits]
    assert b"somebody-who-left" not in on_disk(tmp_path)
    assert len(list(queue.folder.iterdir())) == 1
