"""From stored requests to signed receipts, with a run whose queue is carried out by the test."""

from __future__ import annotations

import json
import os
import shutil
import time
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.attestation.stored import StoredReceipts
from fedforget.attestation.verify import verify_run
from fedforget.erasure_service import completion
from fedforget.erasure_service.dispatcher import NOT_ALONE, REMOVED, UNNAMED
from fedforget.erasure_service.subject_requests import (
    RETRY_SECONDS,
    UNKNOWN,
    UNKNOWN_ITEMS,
    State,
    SubjectRequest,
    pseudonyms_of,
    reference_of,
)
from fedforget.erasure_service.tokens import Role
from fedforget.models import Layout
from fedforget.server.erasure_queue import NO_ITEMS_LEFT, ErasureQueue
from fedforget.server.history import History
from fedforget.simulation.federation import Federation
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on
from tests.small_federations import trained


class Clock:
    """The time, which a test may move on."""

    passed = 0.0

    def __call__(self) -> float:
        return time.time() + self.passed


@pytest.fixture
def run(tmp_path):
    trained(tmp_path / "run").close()
    return tmp_path / "run"


@pytest.fixture
def make(run):
    """Makes services on the run, one at a time."""
    made = []

    def make(**settings):
        service = service_on(run, **settings)
        service.dispatcher.clock = Clock()
        made.append(service)
        return service

    yield make
    for service in made:
        service.stop()


def ask(service, user="17", **changes) -> str:
    """Ask over HTTP; returns the id of the request."""
    body = erasure_of(user, **changes)
    with served(service, Role.REQUESTER) as [client]:
        assert client.post(REQUESTS, json=body).status_code == 201
    return str(body["subject_request_id"])


def state_of(service, id_: str) -> State:
    return service.requests.find(reference_of(id_)).state


def carry_out(service, run) -> None:
    """Let the service and the run work until nothing is queued and the holds have passed."""
    service.dispatcher.tick()
    while queued(run):
        QueuedErasures(run).carry_out()
        service.dispatcher.tick()
        service.dispatcher.clock.passed += service.dispatcher.duration() + 1
        service.dispatcher.tick()
        assert service.problems() == []


def queued(run) -> int:
    return len(ErasureQueue(run).waiting())


def persons(run) -> list[str]:
    """The pseudonyms in all signed receipts."""
    envelopes = [json.loads(path.read_bytes()) for path in sorted(run.glob("receipts/signed/*.json"))]
    statements = [json.loads(b64decode(envelope["payload"])) for envelope in envelopes]
    return [person["pseudonym"] for one in statements for person in one["predicate"]["persons"]]


def test_from_a_request_to_a_signed_receipt(make, run):
    service = make()
    ids = [ask(service, "17"), ask(service, "3"), ask(service, "nobody")]
    service.dispatcher.tick()
    assert [state_of(service, id_) for id_ in ids] == [State.IN_PROGRESS] * 3
    assert queued(run) == 1, "requests that wait together are one erasure"
    carry_out(service, run)
    assert [state_of(service, id_) for id_ in ids] == [State.COMPLETED] * 3
    assert not {3, 17} & set(Federation.open(run).members)
    expected = [
        name for id_, user in zip(ids, ("17", "3", "nobody"), strict=True) for name in pseudonyms_of(id_, [user])
    ]
    assert sorted(persons(run)) == sorted(expected), "who is not a member is named like the others"
    notes = [service.requests.find(reference_of(id_)).note for id_ in ids]
    assert notes == ["", "", UNKNOWN], "operators see that an id may be misspelt"
    assert verify_run(run).passed


def test_an_erasure_of_nobody_is_noted_for_operators_only(make, run):
    service = make()
    id_ = ask(service, "nobody")
    carry_out(service, run)
    assert state_of(service, id_) == State.COMPLETED
    path = f"/v1/requests/{reference_of(id_)}"
    with served(service, Role.OPERATOR, Role.REQUESTER) as [operator, requester]:
        assert operator.get(path).json()["note"] == UNKNOWN
        for answer in (requester.get(f"{REQUESTS}/{id_}"), requester.get(f"{REQUESTS}/{id_}/confirmation")):
            assert UNKNOWN not in answer.text
        assert requester.get(path).status_code == 403


def test_a_confirmation_does_not_tell_who_was_a_member(make, run):
    service = make()
    member, stranger = ask(service, "17"), ask(service, "nobody")
    service.dispatcher.tick()
    carry_out(service, run)
    with served(service, Role.OPERATOR) as [client]:
        answers = [client.get(f"{REQUESTS}/{id_}/confirmation").json() for id_ in (member, stranger)]
    said = [json.loads(b64decode(answer["payload"])) for answer in answers]
    for one in said:
        assert len(one["predicate"].pop("persons")) == 1
        one["predicate"].pop("received")
        one.pop("subject")
    assert said[0] == said[1]


def test_requests_collect_while_an_erasure_is_carried_out(make, run):
    service = make()
    first = ask(service, "17")
    service.dispatcher.tick()
    second, third = ask(service, "3"), ask(service, "4")
    service.dispatcher.tick()
    assert queued(run) == 1
    assert state_of(service, second) is State.PENDING
    QueuedErasures(run).carry_out()
    service.dispatcher.tick()
    service.dispatcher.clock.passed += 2
    service.dispatcher.tick()
    assert state_of(service, first) is State.COMPLETED
    assert [state_of(service, id_) for id_ in (second, third)] == [State.IN_PROGRESS] * 2
    assert queued(run) == 1


def test_an_operator_does_not_wait_for_the_batch(make, run):
    service = make(batch_every="24h")
    id_ = ask(service)
    service.dispatcher.tick()
    assert state_of(service, id_) is State.PENDING
    with served(service, Role.OPERATOR) as [client]:
        assert client.post("/v1/batches").json() == {"waiting": 1}
    service.dispatcher.tick()
    assert state_of(service, id_) is State.IN_PROGRESS


def test_a_near_deadline_does_not_wait_either(make, caplog):
    service = make(batch_every="365d", deadline="30d")
    id_ = ask(service, submitted_time="2026-01-01T00:00:00Z")
    with caplog.at_level("WARNING"):
        service.dispatcher.tick()
    assert state_of(service, id_) is State.IN_PROGRESS
    assert "deadline" in caplog.text


def test_requests_wait_for_approval(make, run):
    service = make(approval=True)
    id_ = ask(service)
    service.dispatcher.tick()
    assert state_of(service, id_) is State.PENDING
    reference = reference_of(id_)
    with served(service, Role.REQUESTER, Role.OPERATOR) as [requester, operator]:
        assert requester.post(f"/v1/requests/{reference}/approve").status_code == 403
        assert operator.post(f"/v1/requests/{reference}/approve").json()["approved"]
        service.dispatcher.tick()
        assert operator.post(f"/v1/requests/{reference}/approve").status_code == 409
        assert operator.post(f"/v1/requests/{reference}/cancel").status_code == 400
    assert state_of(service, id_) is State.IN_PROGRESS


def test_what_cannot_be_carried_out_together_is_carried_out_in_parts(make, run):
    service = make()
    everybody = [ask(service, str(user)) for user in Federation.open(run).members]
    carry_out(service, run)
    states = [state_of(service, id_) for id_ in everybody]
    assert states == [State.COMPLETED] * 39 + [State.PENDING]
    last = service.requests.find(reference_of(everybody[-1]))
    assert "All 1 users" in last.note
    assert len(Federation.open(run).members) == 1
    assert verify_run(run).passed
    assert len(persons(run)) == 39
    service.dispatcher.tick()
    assert queued(run) == 0, "it is not tried again at once"
    service.dispatcher.clock.passed += RETRY_SECONDS + 1
    service.dispatcher.tick()
    assert queued(run) == 1
    assert not list(run.glob("queue/*.refused"))


def test_nobody_is_told_apart_while_nobody_can_be_forgotten(make, run):
    service = make()
    service.worker.status = replace(service.worker.status, estimate_seconds=None, obstacle="Only 3 users would remain.")
    ids = [ask(service, user) for user in ("17", "nobody")]
    carry_out(service, run)
    assert [state_of(service, id_) for id_ in ids] == [State.PENDING] * 2
    assert "Only 3 users would remain." in service.problems()


def test_a_person_of_whom_no_item_would_remain_is_forgotten(make, run):
    fed = Federation.open(run)
    user, items = fed.members[5], fed.train.item_ids.tolist()
    fed.close()
    service = make()
    ids = [ask(service, name, extensions={"fedforget": {"items": items}}) for name in (str(user), "nobody")]
    carry_out(service, run)
    assert [state_of(service, id_) for id_ in ids] == [State.COMPLETED] * 2
    assert user not in Federation.open(run).members
    assert verify_run(run).passed


def test_a_request_for_items_that_a_member_has_not_is_noted_as_such(make, run):
    with closing(Federation.open(run)) as fed:
        user = fed.members[5]
        missing = next(item for item in fed.train.item_ids.tolist() if item not in fed.train.item_ids_of(user))
    service = make()
    ids = [ask(service, str(user), extensions={"fedforget": {"items": [missing]}}), ask(service, "17")]
    carry_out(service, run)
    assert [service.requests.find(reference_of(id_)).note for id_ in ids] == [UNKNOWN_ITEMS, ""]


def test_items_of_many_persons_are_one_erasure(make, run):
    fed = Federation.open(run)
    users, item_of = fed.members[:6], {user: fed.train.item_ids_of(user)[0] for user in fed.members}
    fed.close()
    service = make()
    ids = [ask(service, str(user), extensions={"fedforget": {"items": [item_of[user]]}}) for user in users[:4]]
    ids += [ask(service, str(user)) for user in users[3:]]
    service.dispatcher.tick()
    assert queued(run) == 1
    carry_out(service, run)
    assert {state_of(service, id_) for id_ in ids} == {State.COMPLETED}
    fed = Federation.open(run)
    assert not set(users[3:]) & set(fed.members)
    assert all(item_of[user] not in fed.train.item_ids_of(user) for user in users[:3])
    assert len(persons(run)) == 7


def test_reasons_that_name_a_person_do_not_remain(make, run):
    service = make()
    [id_] = [ask(service, "17")]
    service.dispatcher.tick()
    [erasure] = ErasureQueue(run).waiting()
    ErasureQueue(run).refuse(erasure.id, "User 17 is in the way.")
    service.dispatcher.tick()
    assert not list(run.glob("queue/*"))
    assert state_of(service, id_) is State.PENDING
    # killed between the change in the database and the removal of the file
    ErasureQueue(run).refuse(erasure.id, "User 17 is in the way.")
    ErasureQueue(run).refuse("0123456789abcdef", "Of an erasure that was asked for elsewhere.")
    (run / "queue" / f".0000-{erasure.id}.json.part").write_text("User 17")
    service.stop()
    make().dispatcher.tick()
    assert [path.name for path in run.glob("queue/*")] == ["0123456789abcdef.refused"]


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        (f"User 17 {NO_ITEMS_LEFT}. Forget the user as a whole: forget([17]).", NOT_ALONE),
        ("Only 3 users would remain. Register more.", "Only 3 users would remain. Register more."),
        ("Too few devices of 170 answered.", "Too few devices of 170 answered."),
        ("There is no user 17 in this federation.", UNNAMED),
    ],
)
def test_notes_of_a_refused_request_for_items_give_the_reason_without_the_person(make, run, reason, note):
    service = make()
    id_ = ask(service, "17", extensions={"fedforget": {"items": [50]}})
    service.dispatcher.tick()
    [erasure] = ErasureQueue(run).waiting()
    ErasureQueue(run).refuse(erasure.id, reason)
    service.dispatcher.tick()
    assert service.requests.find(reference_of(id_)).note == note


def test_items_that_cannot_be_forgotten_alone(make, run, monkeypatch):
    fed = Federation.open(run)
    user = fed.members[5]
    items = fed.train.item_ids_of(user)[:1]
    fed.close()
    service = make()
    id_ = ask(service, str(user), extensions={"fedforget": {"items": items}})
    service.dispatcher.tick()
    monkeypatch.setattr(History, "first_round_of", lambda history, users: -1)  # no item counted in that round
    QueuedErasures(run).carry_out()
    service.dispatcher.tick()
    assert service.requests.find(reference_of(id_)).note == NOT_ALONE


def test_a_damaged_file_in_the_queue_is_replaced(make, run):
    service = make()
    id_ = ask(service)
    service.dispatcher.tick()
    [path] = run.glob("queue/*.json")
    path.write_bytes(b"")
    service.dispatcher.tick()  # finds the damage
    carry_out(service, run)
    carry_out(service, run)
    assert state_of(service, id_) is State.COMPLETED
    assert 17 not in Federation.open(run).members


def test_an_erasure_that_was_removed_from_the_queue_makes_its_requests_pending(make, run):
    service = make()
    id_ = ask(service)
    service.dispatcher.tick()
    service.dispatcher.tick()
    [erasure] = ErasureQueue(run).waiting()
    ErasureQueue(run).remove(erasure.id)
    for _ in range(3):
        service.dispatcher.tick()
    assert state_of(service, id_) is State.PENDING
    assert queued(run) == 0
    service.stop()
    again = make()
    again.dispatcher.clock.passed += RETRY_SECONDS + 1
    again.dispatcher.tick()
    assert queued(run) == 1


def test_a_clock_that_was_ahead_holds_nothing_up(make, run):
    service = make(batch_every="24h")
    service.dispatcher.clock.passed = 365 * 86400.0
    service.worker.status = replace(service.worker.status, estimate_seconds=60.0)
    first = ask(service)
    service.dispatcher.wake(start_now=True)
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    service.dispatcher.tick()
    service.dispatcher.clock.passed = 0.0
    service.dispatcher.tick()
    assert state_of(service, first) is State.COMPLETED
    second = ask(service, "3")
    service.dispatcher.clock.passed = 86400.0 + 60
    service.dispatcher.tick()
    assert state_of(service, second) is State.IN_PROGRESS, "a day after it came, not after the wrong time"


def test_no_request_is_loaded_before_a_batch_starts(make, monkeypatch):
    service = make(batch_every="24h", approval=True)
    for user in "123":
        ask(service, user)
    reference = reference_of(ask(service, "4"))
    service.requests.approve(reference)
    loaded, of_row = [], SubjectRequest.of_row
    monkeypatch.setattr(SubjectRequest, "of_row", lambda row: loaded.append(row["reference"]) or of_row(row))
    service.dispatcher.tick()
    assert loaded == []
    service.dispatcher.clock.passed = 86400.0
    service.dispatcher.tick()
    assert set(loaded) == {reference}


def test_start_now_is_not_lost_by_a_cancellation(make, run, monkeypatch):
    service = make(batch_every="24h")
    kept, cancelled = ask(service), ask(service, "3")
    store = service.dispatcher._store

    def cancel_first(requests, erasure):
        monkeypatch.setattr(service.dispatcher, "_store", store)
        service.requests.finish(reference_of(cancelled), State.CANCELLED, time.time())
        store(requests, erasure)

    monkeypatch.setattr(service.dispatcher, "_store", cancel_first)
    service.dispatcher.wake(start_now=True)
    service.dispatcher.tick()
    assert state_of(service, kept) is State.PENDING
    with service.requests.writing() as db:
        db.execute("UPDATE subject_request SET state = 'cancelled' WHERE reference = ?", (reference_of(cancelled),))
    service.dispatcher.tick()
    assert state_of(service, kept) is State.IN_PROGRESS


def test_a_near_deadline_of_a_request_that_waits_for_approval_is_logged_once(make, run, caplog):
    service = make(approval=True)
    id_ = ask(service, submitted_time="2026-01-01T00:00:00Z")
    with caplog.at_level("WARNING"):
        service.dispatcher.tick()
        service.dispatcher.tick()
    assert [reference_of(id_) in record.message for record in caplog.records] == [True]
    assert state_of(service, id_) is State.PENDING


def test_items_of_a_person_who_stays(make, run):
    fed = Federation.open(run)
    user = fed.members[5]
    items = fed.train.item_ids_of(user)[:2]
    fed.close()
    service = make()
    id_ = ask(service, str(user), extensions={"fedforget": {"items": items}})
    service.dispatcher.tick()
    carry_out(service, run)
    assert state_of(service, id_) is State.COMPLETED
    fed = Federation.open(run)
    assert user in fed.members
    assert not set(items) & set(fed.train.item_ids_of(user))
    assert persons(run) == list(pseudonyms_of(id_, [str(user)]))
    assert verify_run(run).passed
    confirmed = json.loads(service.requests.find(reference_of(id_)).statement)
    [person] = json.loads(b64decode(confirmed["payload"]))["predicate"]["persons"]
    assert person["items_requested"] == 2


def test_erasures_of_the_command_line_are_signed_too(make, run):
    fed = Federation.open(run)
    fed.forget([17])
    fed.close()
    service = make()
    service.dispatcher.tick()
    assert len(persons(run)) == 1
    assert verify_run(run).passed


def test_a_receipt_that_was_changed_is_not_signed_again(make, run):
    fed = Federation.open(run)
    fed.forget([17])
    service = make()
    service.dispatcher.tick()
    [(request, text)] = fed.history.receipts().items()
    changed = json.dumps({**json.loads(text), "seconds": 1e6}, indent=2)
    fed.history.add_receipt(request, changed)
    fed.close()
    (run / "receipts" / f"{request}.json").write_text(changed)
    service.dispatcher.tick()
    assert "is not the one that was signed" in service.problems()[0]
    assert len(list(run.glob("receipts/signed/*.json"))) == 1
    assert not verify_run(run).passed


def test_wipe_counts_that_cannot_be_are_not_signed_and_named(make, run):
    service = make()
    id_ = ask(service)
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    with changed_receipt(run, given_up=7):
        finish(service)
        assert "cannot be: a simulation has no devices to wipe" in service.problems()[0]
        assert not list(run.glob("receipts/signed/*.json"))
        assert state_of(service, id_) is State.IN_PROGRESS
    finish(service)
    assert service.problems() == []
    assert state_of(service, id_) is State.COMPLETED


def test_receipts_that_cannot_be_signed_are_read_once_and_stay_named(make, run, monkeypatch):
    reads, read = [], StoredReceipts.read.__func__
    monkeypatch.setattr(StoredReceipts, "read", classmethod(lambda cls, path: reads.append(path) or read(cls, path)))
    fed = Federation.open(run)
    fed.forget([3])
    fed.close()
    service = make()
    with changed_receipt(run, given_up=1) as other:
        id_ = ask(service)
        service.dispatcher.tick()
        QueuedErasures(run).carry_out()
        erasure = service.batches.open()[0].id
        store_receipt(run, erasure, "{")
        finish(service)
        named, so_far = service.problems(), len(reads)
        assert [text.split(":")[0] for text in named] == [f"Erasure {erasure}", "Receipts"]
        assert other in named[1]
        for _ in range(5):
            service.dispatcher.tick()
        assert (service.problems(), len(reads)) == (named, so_far)
        assert state_of(service, id_) is State.IN_PROGRESS


def test_a_receipt_that_was_repaired_in_the_history_only_is_looked_at_again(make, run):
    service = make()
    id_ = ask(service)
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    with changed_receipt(run, given_up=7) as erasure:
        finish(service)
        assert service.problems() != []
        kept = (run / "receipts" / f"{erasure}.json").stat()
    os.utime(run / "receipts" / f"{erasure}.json", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    finish(service)
    assert service.problems() == []
    assert state_of(service, id_) is State.COMPLETED


@pytest.mark.parametrize("restarted", [False, True])
def test_a_receipt_that_is_only_a_file_does_not_count_as_done(make, run, tmp_path, restarted):
    """The run was restored from before the erasure, but for its receipts."""
    service = make()
    id_ = ask(service)
    service.dispatcher.tick()
    shutil.copytree(run, tmp_path / "copy")
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    erasure = service.batches.open()[0].id
    for path in run.glob("trajectory-*"):
        shutil.rmtree(path)
    for path in (tmp_path / "copy").glob("trajectory-*"):
        shutil.copytree(path, run / path.name)
    shutil.copy(tmp_path / "copy" / "config.toml", run / "config.toml")
    assert (run / "receipts" / f"{erasure}.json").exists()
    if restarted:
        service.stop()
        service = make()
    service.dispatcher.tick()
    service.dispatcher.tick()
    assert service.problems() == []
    if not restarted:
        assert service.requests.find(reference_of(id_)).note == REMOVED
        service.dispatcher.clock.passed += RETRY_SECONDS + 1
    carry_out(service, run)
    assert state_of(service, id_) is State.COMPLETED


def finish(service) -> None:
    """Let the service complete what is carried out."""
    service.dispatcher.tick()
    service.dispatcher.clock.passed += service.dispatcher.duration() + 1
    service.dispatcher.tick()


@contextmanager
def changed_receipt(run, **changes):
    """The only receipt of a run with other values, in the history and in its file."""
    with closing(Federation.open(run)) as fed:
        [(request, text)] = fed.history.receipts().items()
    store_receipt(run, request, json.dumps({**json.loads(text), **changes}, indent=2))
    yield request
    store_receipt(run, request, text)


def store_receipt(run, request: str, text: str) -> None:
    """Write a receipt to the history and its file."""
    with closing(History(max(run.glob("trajectory-*")), Layout({}))) as history:
        history.add_receipt(request, text)
    (run / "receipts" / f"{request}.json").write_text(text)


def test_nothing_that_names_the_person_remains(make, run):
    fed = Federation.open(run)
    user = fed.members[0]
    fed.close()
    service = make()
    id_ = ask(service, f"{user}")
    other = ask(service, "unmistakable-name-of-nobody")
    service.dispatcher.tick()
    carry_out(service, run)
    found = service.requests.find(reference_of(id_))
    assert (found.id, found.users, found.items, found.callbacks) == (None, (), (), ())
    content = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert b"unmistakable-name-of-nobody" not in content
    for one in (id_, other):
        assert one.encode() not in content


def test_a_failure_is_reported_and_passes(make, run, monkeypatch):
    service = make()
    ask(service)
    add: Callable[..., None] = service.dispatcher.files.add

    def fail(content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service.dispatcher.files, "add", fail)
    service.dispatcher.start()
    _until(lambda: service.problems() != [])
    monkeypatch.setattr(service.dispatcher.files, "add", add)
    service.dispatcher.wake()
    _until(lambda: service.problems() == [] and queued(run) == 1)


def test_a_damaged_batch_holds_up_no_other_one_and_is_named(make, run, monkeypatch):
    service = make()
    damaged = ask(service)
    service.dispatcher.tick()
    [batch] = service.batches.open()
    QueuedErasures(run).carry_out()
    sign = service.dispatcher.completion.sign

    def fail(found, now, *, late):
        if found.id == batch.id:
            raise ValueError("the receipt cannot be read")
        return sign(found, now, late=late)

    monkeypatch.setattr(service.dispatcher.completion, "sign", fail)
    other, cancelled = ask(service, "3"), ask(service, "4")
    with service.requests.writing() as db:
        db.execute("DELETE FROM subject_request WHERE reference = ?", (reference_of(cancelled),))
    service.requests._deleted = True
    for _ in range(3):
        service.dispatcher.tick()
        service.dispatcher.clock.passed += 2
    assert service.problems() == [f"Erasure {batch.id}: ValueError"]
    content = b"".join(path.read_bytes() for path in run.glob("service/service.sqlite*"))
    assert cancelled.encode() not in content, "deleted content is removed in any case"
    QueuedErasures(run).carry_out()
    for _ in range(2):
        service.dispatcher.tick()
        service.dispatcher.clock.passed += 2
    assert state_of(service, other) is State.COMPLETED
    assert state_of(service, damaged) is State.IN_PROGRESS
    monkeypatch.undo()
    service.dispatcher.tick()
    assert state_of(service, damaged) is State.COMPLETED
    assert service.problems() == []


def test_a_batch_that_cannot_be_read_is_named_and_others_start(make, run):
    service = make()
    damaged = ask(service)
    service.dispatcher.tick()
    [batch] = service.batches.open()
    ErasureQueue(run).remove(batch.id)
    with service.requests.writing() as db:
        db.execute("UPDATE batch SET content = '{'")
    other = ask(service, "3")
    service.stop()
    service = make()
    service.dispatcher.tick()
    assert service.problems() == [f"Erasure {batch.id}: JSONDecodeError"]
    assert state_of(service, other) is State.IN_PROGRESS
    assert state_of(service, damaged) is State.IN_PROGRESS


def test_requests_are_completed_in_chunks_and_calls_answered_in_between(make, run, monkeypatch):
    monkeypatch.setattr(completion, "CHUNK", 2)
    service = make()
    ids = [ask(service, f"nobody-{place}") for place in range(5)]
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    service.dispatcher.tick()
    service.dispatcher.clock.passed += 2
    found, unfinished = [], service.requests.unfinished

    def look(batch, limit):
        free = service.requests._lock.acquire(blocking=False)
        with ThreadPoolExecutor(1) as pool:
            found.append((free, pool.submit(service.requests.counts).result()[State.COMPLETED]))
        service.requests._lock.release()
        return unfinished(batch, limit)

    monkeypatch.setattr(service.requests, "unfinished", look)
    service.dispatcher.tick()
    assert found == [(True, done) for done in (0, 2, 4, 5)]
    assert [state_of(service, id_) for id_ in ids] == [State.COMPLETED] * 5


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
