"""Batches: which requests they hold, and how long one is busy."""

from __future__ import annotations

import pytest

from fedforget.erasure_service import batches, subject_requests
from fedforget.erasure_service.batches import MEASURED, Batches
from fedforget.erasure_service.holds import Holds
from fedforget.erasure_service.state_file import FOLDER, NAME, open_state
from fedforget.erasure_service.subject_requests import ConflictError, State, SubjectRequests
from fedforget.server.request import ErasureRequest
from tests.erasure_service.test_subject_requests import NOW, made


@pytest.fixture
def store(tmp_path):
    schema = subject_requests.SCHEMA + batches.SCHEMA
    requests = SubjectRequests(open_state(tmp_path, schema), tmp_path / FOLDER / NAME)
    yield Batches(requests)
    requests.close()


def started(store, *references, now=NOW, estimate=0.0) -> str:
    """The id of a new batch."""
    erasure = ErasureRequest.new(["somebody-17"], {"name": "fru"})
    store.start(erasure, references, now, estimate)
    return erasure.id


def test_a_batch_takes_pending_requests_only(store):
    first, second = store.requests.add(made()), store.requests.add(made())
    store.requests.finish(second.reference, State.CANCELLED, NOW)
    with pytest.raises(ConflictError):
        started(store, first.reference, second.reference)
    assert store.requests.find(first.reference).state is State.PENDING, "nothing of the batch is stored"
    assert store.open() == []
    batch = started(store, first.reference)
    assert store.requests.find(first.reference).state is State.IN_PROGRESS
    assert [each.id for each in store.open()] == [batch]
    assert store.erasure(batch).users == ("somebody-17",)
    assert store.last() == NOW


def test_a_refused_batch_returns_its_requests_and_whoever_asked_is_not_told(store):
    request = store.requests.add(made())
    store.give_back(started(store, request.reference), "too few would remain", NOW + 600)
    again = store.requests.find(request.reference)
    assert (again.state, again.note, again.not_before) == (State.PENDING, "too few would remain", NOW + 600)
    assert again.told is State.IN_PROGRESS
    assert store.open() == []
    assert store.requests.waiting(NOW) is None
    assert store.requests.waiting(NOW + 600).count == 1


def test_a_batch_is_busy_from_its_turn_on(store):
    batch = started(store)
    assert store.busy_until(NOW) == NOW
    store.begin(batch, NOW + 5, Holds(10.0, 60.0))
    assert store.get(batch).finish_from == NOW + 65
    assert store.busy_until(NOW + 6) == NOW + 15
    store.close(batch, "refused")
    assert store.busy_until(NOW + 6) == NOW + 15, "also when it is finished"
    assert store.busy_until(NOW + 15) == NOW + 15
    assert store.busy_until(NOW + 4) == NOW + 4, "the clock was ahead"


def test_holds_are_longer_than_what_the_newest_batches_took(store):
    assert store.holds(100.0, 1e6) == Holds(201.0, 201.0)
    for place in range(MEASURED + 1):
        batch = started(store, now=NOW + place)
        store.replayed(batch, 1000.0 if place < 2 else 400.0)
        store.signed(batch, 8000.0 if place == 1 else None)
    started(store, now=NOW + 99)  # it was not measured
    assert store.holds(100.0, 1e6) == Holds(1251.0, 10_000.0)
    store.replayed(started(store, now=NOW + 100), 400.0)
    assert store.holds(100.0, 1e6) == Holds(501.0, 501.0), "the slow ones were long ago"
    store.replayed(started(store, now=NOW + 101), 2e6)
    assert store.holds(100.0, 1e6) == Holds(501.0, 501.0), "the clock was wrong"


def test_the_estimate_of_the_last_batch_is_kept(store):
    assert store.estimate() == 0.0
    started(store, estimate=30.0)
    batch = started(store, now=NOW + 1, estimate=20.0)
    store.close(batch, "done")
    assert store.estimate() == 20.0
