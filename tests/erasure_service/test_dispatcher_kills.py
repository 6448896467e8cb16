"""The dispatcher is killed between any two writes; the next process ends in the right state and no name remains.

A kill is an exception that nothing handles; ``test_service_kills`` kills real processes.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.attestation.chain import ReceiptChain
from fedforget.attestation.verify import verify_run
from fedforget.erasure_service import completion
from fedforget.erasure_service.batches import Batches
from fedforget.erasure_service.intake import cancel
from fedforget.erasure_service.queue_files import QueueFiles
from fedforget.erasure_service.subject_requests import (
    RETRY_SECONDS,
    State,
    SubjectRequests,
    pseudonyms_of,
    reference_of,
)
from fedforget.erasure_service.tokens import Holder, Role
from fedforget.server import erasure_queue, request
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.simulation.federation import Federation
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on
from tests.erasure_service.test_schedule import Clock
from tests.small_federations import DATA, trained

MEMBERS = ["unmistakable-03", "unmistakable-17"]
PERSONS = [*MEMBERS, "unmistakable-stranger"]


class Killed(BaseException):
    """The process is killed."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    run = tmp_path_factory.mktemp("prepared") / "run"
    names = np.array([f"unmistakable-{place:02}" for place in range(DATA.n_users)])
    trained(run, replace(DATA, user_ids=names)).close()
    return run


@pytest.fixture
def run(prepared, tmp_path):
    shutil.copytree(prepared, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def make(run):
    """Makes services on the run, which succeed each other."""
    clock, made = Clock(), []

    def make():
        if made:
            made[-1].stop()
        made.append(service_on(run, callback_hosts=("calls.example",)))
        made[-1].dispatcher.clock = clock
        return made[-1]

    yield make
    made[-1].stop()


@pytest.fixture
def kill(monkeypatch):
    """Kills right before or after the n-th call of a method, or in the middle of writing a file."""
    monkeypatch.setattr(completion, "CHUNK", 1)

    def at(owner: type, name: str, when: str, n: int = 1) -> None:
        original, calls = getattr(owner, name), []

        def deadly(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            if len(calls) == n and when == "before":
                raise Killed
            result = original(*args, **kwargs)
            if len(calls) == n:
                raise Killed
            return result

        monkeypatch.setattr(owner, name, deadly)

    return at


def ask(service, persons) -> list[str]:
    """Ask for persons; returns the ids of the requests."""
    bodies = [erasure_of(person, status_callback_urls=["https://calls.example/done"]) for person in persons]
    for body in bodies:
        body["submitted_time"] = "2026-11-01T00:00:00Z"
    with served(service, Role.REQUESTER) as [client]:
        assert [client.post(REQUESTS, json=body).status_code for body in bodies] == [201] * len(bodies)
    return [str(body["subject_request_id"]) for body in bodies]


def live(service, run, *, refuse: int = 0) -> None:
    """Let the service and the worker do everything; the first erasures are refused."""
    for _ in range(4):
        for _ in range(6):
            service.dispatcher.tick()
            assert service.problems() == []
            service.dispatcher.clock.now += 1.0
        for erasure in ErasureQueue(run).waiting()[:refuse]:
            ErasureQueue(run).refuse(erasure.id, f"{erasure.users[0]} is in the way.")
            refuse -= 1
            break
        else:
            QueuedErasures(run).carry_out()


def assert_done(service, run, ids: list[str], persons: list[str]) -> None:
    """Everything is completed once, told once, and names nobody any more."""
    found = [service.requests.find(reference_of(id_)) for id_ in ids]
    assert [one.state for one in found] == [State.COMPLETED] * len(ids)
    assert service.batches.open() == []
    fed = Federation.open(run)
    assert len(fed.members) == DATA.n_users - len(set(persons) & set(MEMBERS))
    fed.close()
    envelopes = [json.loads(path.read_bytes()) for path in run.glob("receipts/signed/*.json")]
    statements = [json.loads(b64decode(envelope["payload"])) for envelope in envelopes]
    named = Counter(person["pseudonym"] for one in statements for person in one["predicate"]["persons"])
    all_names = [pseudonyms_of(id_, [person])[0] for id_, person in zip(ids, persons, strict=True)]
    assert set(named.values()) <= {1}
    assert set(named) <= set(all_names)
    assert {name for name, person in zip(all_names, persons, strict=True) if person in MEMBERS} <= set(named)
    assert verify_run(run).passed
    told = [
        json.loads(row["body"])["request_status"]
        for row in service.requests.reader.execute("SELECT body FROM callback ORDER BY number")
    ]
    assert Counter(told) == {"in_progress": len(ids), "completed": len(ids)}
    assert_unnamed(service, run, ids, persons)


def assert_unnamed(service, run, ids: list[str], persons: list[str]) -> None:
    """No file of the run folder names the persons or their requests, but callbacks that wait."""
    with service.requests.writing(scrubbed=True) as db:
        db.execute("DELETE FROM callback")
    content = b"".join(path.name.encode() + path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert [name for name in [*persons, *ids] if name.encode() in content] == []
    assert list(run.glob("queue/*")) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name", "n"),
    [
        (Batches, "start", 1),
        (ErasureQueue, "add", 1),
        (Batches, "begin", 1),
        (Batches, "replayed", 1),
        (ReceiptChain, "append", 1),
        (Batches, "signed", 1),
        (SubjectRequests, "finish", 1),
        (SubjectRequests, "finish", 2),
        (SubjectRequests, "finish", 3),
        (Batches, "close", 1),
        (QueueFiles, "forget", 1),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_killed_while_a_batch_is_carried_out(make, run, kill, monkeypatch, owner, name, n, when):
    service = make()
    ids = ask(service, PERSONS)
    kill(owner, name, when, n)
    with pytest.raises(Killed):
        live(service, run)
    monkeypatch.undo()
    service = make()
    live(service, run)
    assert_done(service, run, ids, PERSONS)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name", "n"),
    [
        (Batches, "give_back", 1),
        (Batches, "start", 2),
        (Batches, "start", 3),
        (ErasureQueue, "add", 2),
        (ErasureQueue, "add", 3),
        (QueueFiles, "forget", 1),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_killed_while_a_batch_is_split(make, run, kill, monkeypatch, owner, name, n, when):
    service = make()
    ids = ask(service, PERSONS)
    kill(owner, name, when, n)
    with pytest.raises(Killed):
        live(service, run, refuse=1)
    monkeypatch.undo()
    service = make()
    live(service, run)
    assert_done(service, run, ids, PERSONS)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("owner", "name"), [(Batches, "give_back"), (QueueFiles, "forget")])
def test_killed_while_a_request_is_returned(make, run, kill, monkeypatch, owner, name, when):
    service = make()
    ids = ask(service, MEMBERS[:1])
    kill(owner, name, when)
    with pytest.raises(Killed):
        live(service, run, refuse=1)
    monkeypatch.undo()
    service = make()
    service.dispatcher.tick()
    assert service.requests.find(reference_of(ids[0])).told is State.IN_PROGRESS
    assert list(run.glob("queue/*")) == []
    service.dispatcher.clock.now += RETRY_SECONDS
    live(service, run)
    assert_done(service, run, ids, MEMBERS[:1])


@pytest.mark.parametrize("n", [1, 2], ids=["first attempt", "second attempt"])
def test_killed_while_the_file_in_the_queue_is_written(make, run, monkeypatch, n):
    service = make()
    ids = ask(service, PERSONS)
    for _ in range(n):
        monkeypatch.setattr(request, "write_file", half_written)
        with pytest.raises(Killed):
            live(service, run)
        monkeypatch.undo()
        service = make()
    assert len(list(run.glob("queue/.*.part"))) == n
    live(service, run)
    assert_done(service, run, ids, PERSONS)


def test_killed_while_the_reason_of_a_refusal_is_written(make, run, monkeypatch):
    service = make()
    ids = ask(service, MEMBERS[:1])
    monkeypatch.setattr(erasure_queue, "write_file", half_written)
    with pytest.raises(Killed):
        live(service, run, refuse=1)
    monkeypatch.undo()
    service = make()
    live(service, run)
    assert_done(service, run, ids, MEMBERS[:1])


def half_written(path, data: bytes) -> None:
    path.with_name(f".{path.name}.part").write_bytes(data)
    raise Killed


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_a_request_is_cancelled(make, run, kill, monkeypatch, when):
    service = make()
    service.worker.status = replace(service.worker.status, estimate_seconds=None)
    [id_] = ask(service, MEMBERS[:1])
    operator = Holder("operator", "operator", Role.OPERATOR, "operator")
    kill(SubjectRequests, "finish", when)
    with pytest.raises(Killed):
        cancel(service, reference_of(id_), operator)
    monkeypatch.undo()
    service = make()
    assert service.requests.find(reference_of(id_)).state is State.PENDING
    cancel(service, reference_of(id_), operator)
    live(service, run)
    assert service.requests.find(reference_of(id_)).state is State.CANCELLED
    assert MEMBERS[0] in Federation.open(run).members
    assert_unnamed(service, run, [id_], [])


def test_a_receipt_that_is_only_in_the_history_counts(make, run):
    """A kill after the commit, before the receipt's file is written and after the erasure has left the queue."""
    service = make()
    ids = ask(service, MEMBERS)
    service.dispatcher.tick()
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    [path] = run.glob("receipts/*.json")
    content = path.read_bytes()
    path.unlink()
    live(service, run)
    path.write_bytes(content)  # as the next process does that opens the run
    assert_done(service, run, ids, MEMBERS)
