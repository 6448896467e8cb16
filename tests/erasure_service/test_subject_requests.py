"""The store of requests: idempotent, whole after any kill, and without names once a request is finished."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from fedforget.erasure_service.state_file import FOLDER, NAME, open_state
from fedforget.erasure_service.subject_requests import (
    SCHEMA,
    ConflictError,
    State,
    SubjectRequest,
    SubjectRequests,
    digest_of,
    ids_like,
    pseudonyms_of,
    reference_of,
)
from fedforget.protocol.pseudonym import pseudonym

NOW = 1_790_000_000.0


@pytest.fixture
def store(tmp_path):
    requests = SubjectRequests(open_state(tmp_path, SCHEMA), tmp_path / FOLDER / NAME)
    yield requests
    requests.close()


def made(user="somebody-17", **changes) -> SubjectRequest:
    id_ = changes.pop("id_", str(uuid.uuid4()))
    body = changes.pop("body", b"{}")
    request = SubjectRequest(
        reference_of(id_),
        id_,
        (user,),
        (),
        ("https://a.example/done",),
        pseudonyms_of(id_, [user]),
        digest_of(id_, body),
        "holder01",
        "gdpr",
        NOW,
        NOW,
        NOW + 1000,
        NOW + 10,
        State.PENDING,
        True,
    )
    return replace(request, **changes)


def test_a_request_is_stored_and_found_again(store):
    request = store.add(made(items=(1, "two")))
    assert store.find(request.reference) == request
    assert store.in_state(State.PENDING) == [request]
    assert store.find("0" * 16) is None
    assert store.counts() == {State.PENDING: 1, State.IN_PROGRESS: 0, State.COMPLETED: 0, State.CANCELLED: 0}


def test_the_same_request_again_changes_nothing(store):
    first = store.add(made(id_="a7551968-d5d6-44b2-9831-815ac9017798"))
    again = store.add(replace(first, received=NOW + 50, expected=NOW + 99))
    assert again == first
    assert len(store.in_state(State.PENDING)) == 1


@pytest.mark.parametrize("change", [{"holder": "holder02"}, {"digest": "0" * 64}])
def test_another_request_with_the_same_id_is_refused(store, change):
    first = store.add(made())
    with pytest.raises(ConflictError, match="Another request"):
        store.add(replace(first, **change))
    assert store.find(first.reference) == first


def test_a_finished_request_comes_again_and_stays_finished(store):
    first = store.add(made())
    store.finish(first.reference, State.COMPLETED, NOW + 5, "{}")
    again = store.add(first)
    assert again.state is State.COMPLETED
    assert store.in_state(State.PENDING) == []


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELLED])
def test_nothing_of_the_person_remains_in_any_file(store, tmp_path, state):
    secret = str(uuid.uuid4())
    store.add(made("unmistakable-user-name", id_=secret, callbacks=("https://unmistakable.example/x",)))
    with store.writing(scrubbed=True):
        store.finish(reference_of(secret), state, NOW + 1)
    content = _content(tmp_path)
    for trace in (b"unmistakable-user-name", b"unmistakable.example", secret.encode(), uuid.UUID(secret).bytes):
        assert trace not in content
    assert pseudonym("unmistakable-user-name", uuid.UUID(secret).hex).encode() in content


@pytest.mark.parametrize("reading", [False, True], ids=["killed before it was scrubbed", "somebody reads"])
def test_deleted_content_that_could_not_be_scrubbed_is_later(store, tmp_path, reading):
    path = next(tmp_path.rglob(NAME))
    store.add(made("unmistakable-user-name", id_=(secret := str(uuid.uuid4()))))
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM subject_request").fetchall()
        with store.writing(scrubbed=reading):
            store.finish(reference_of(secret), State.COMPLETED, NOW + 1)
        assert b"unmistakable-user-name" in _content(tmp_path)
    later = store if reading else SubjectRequests(open_state(tmp_path, SCHEMA), path)
    later.scrub_if_due()
    assert b"unmistakable-user-name" not in _content(tmp_path)


def _content(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_who_knows_the_id_recognises_the_person_and_nobody_else_does():
    id_, other = str(uuid.uuid4()), str(uuid.uuid4())
    assert pseudonyms_of(id_, ["17"]) == (pseudonym("17", uuid.UUID(id_).hex),)
    assert pseudonyms_of(id_, ["17"]) != pseudonyms_of(other, ["17"])


def test_a_finished_request_cannot_be_finished_again(store):
    request = store.add(made())
    store.finish(request.reference, State.CANCELLED, NOW)
    with pytest.raises(ConflictError, match="finished"):
        store.finish(request.reference, State.COMPLETED, NOW)


def test_approval_is_only_for_pending_requests(store):
    request = store.add(made(approved=False))
    store.approve(request.reference)
    assert store.find(request.reference).approved
    store.finish(request.reference, State.CANCELLED, NOW)
    with pytest.raises(ConflictError, match="not pending"):
        store.approve(request.reference)


def test_pages_are_newest_first_and_miss_none(store):
    requests = [store.add(made(received=NOW + place // 2)) for place in range(7)]
    seen, before = [], None
    while page := store.page(3, before, None):
        seen += page
        before = page[-1].received, page[-1].reference
    assert sorted(one.reference for one in seen) == sorted(one.reference for one in requests)
    assert [one.received for one in seen] == sorted((one.received for one in seen), reverse=True)
    assert store.page(10, None, State.COMPLETED) == []


def test_a_failed_transaction_leaves_nothing(store):
    request = made()

    def fail():
        with store.writing():
            store.add(request)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.find(request.reference) is None


def test_threads_store_each_request_once(store):
    requests = [made() for _ in range(20)]
    threads = [threading.Thread(target=lambda: [store.add(one) for one in requests]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.counts()[State.PENDING] == 20


def in_thread(function):
    """What a function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_what_is_committed_is_seen_while_another_thread_reads_many_requests(store):
    for _ in range(3):
        store.add(made())
    unfinished = store.reader.execute("SELECT * FROM subject_request")
    unfinished.fetchone()
    request = store.add(made())
    assert in_thread(lambda: store.find(request.reference)) == request
    assert len(unfinished.fetchall()) == 2, "the other thread reads on as it began"


def test_readers_are_closed_with_their_thread_or_with_the_store(store):
    assert in_thread(lambda: store.reader) is not store.reader
    assert len(store._readers._opened) == 1, "that of the thread which has ended is gone"
    reader = store.reader
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        reader.execute("SELECT 1")


@pytest.mark.parametrize(
    ("text", "ids"), [("17", [17, "17"]), ("-3", [-3, "-3"]), ("007", ["007"]), ("a", ["a"]), ("9" * 30, ["9" * 30])]
)
def test_an_id_may_be_a_number_or_text(text, ids):
    assert ids_like(text) == ids
