"""What can be seen of a request from outside over time: the same for a member and for somebody unknown."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.attestation import stored
from fedforget.attestation.stored import StoredReceipts
from fedforget.erasure_service import completion
from fedforget.erasure_service.dispatcher import QUEUE_SECONDS
from fedforget.erasure_service.opendsr import rfc3339
from fedforget.erasure_service.status import RunStatus
from fedforget.erasure_service.subject_requests import State, reference_of
from fedforget.erasure_service.tokens import Role
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on
from tests.small_federations import trained

BASE = 1_800_000_000.0
ESTIMATE = 20.0
#: The replay hold of a run in which nothing was measured yet.
HOLD = 2 * ESTIMATE + 1
MEMBER, STRANGER = "17", "nobody"


class Clock:
    """The time, as a test sets it."""

    now = BASE

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    run = tmp_path_factory.mktemp("prepared") / "run"
    trained(run).close()
    return run


@dataclass
class World:
    """A service on a run of its own, and whoever carries out its queue."""

    service: Any
    requester: Any
    operator: Any
    ids: list[str] = field(default_factory=list)
    queued: dict[str, float] = field(default_factory=dict)
    until: float | None = None

    @property
    def run(self):
        return self.service.run

    @property
    def dispatcher(self):
        return self.service.dispatcher

    def ask(self, user: str, **changes: Any) -> str:
        submitted = rfc3339(self.dispatcher.clock())
        urls = ["https://calls.example/done"]
        body = erasure_of(user, **{"submitted_time": submitted, "status_callback_urls": urls, **changes})
        answer = self.requester.post(REQUESTS, json=body)
        assert answer.status_code == 201, answer.text
        self.ids.append(str(body["subject_request_id"]))
        return self.ids[-1]

    def move(self, seconds: float) -> None:
        self.dispatcher.clock.now += seconds
        self.dispatcher.tick()
        assert self.service.problems() == []

    def state(self, id_: str) -> str:
        status: str = self.requester.get(f"{REQUESTS}/{id_}").json()["request_status"]
        return status

    def begin(self) -> bool:
        """Begin what is queued; returns whether it is replayed. What concerns nobody is refused at once."""
        [erasure] = ErasureQueue(self.run).waiting()
        if set(erasure.users) == {STRANGER}:
            QueuedErasures(self.run).carry_out()
            return False
        erasure.save(self.run / "request.json")
        return True

    def end(self) -> None:
        """End the replay that was begun."""
        (self.run / "request.json").unlink()
        QueuedErasures(self.run).carry_out()

    def seen(self) -> list[Any]:
        """What the requester sees now, without what differs between any two requests."""
        answers = [self.requester.get(f"{REQUESTS}/{id_}").json() for id_ in self.ids]
        bodies = self.service.requests.reader.execute("SELECT body FROM callback ORDER BY number").fetchall()
        hidden = ("controller_id", "subject_request_id", "results_url")
        told = [*answers, *(json.loads(row["body"]) for row in bodies)]
        return [{name: value for name, value in one.items() if name not in hidden} for one in told]

    def history(self, replay: float, wait: float = 3.0, total: float = 150.0) -> list[Any]:
        """What is seen every half second while whoever carries out the queue works on it.

        An erasure begins when it was queued for ``wait`` seconds, and takes ``replay`` seconds.
        """
        seen = []
        self.dispatcher.tick()
        for _ in range(int(total * 2)):
            now, queued = self.dispatcher.clock(), ErasureQueue(self.run).waiting()
            since = self.queued.setdefault(queued[0].id, now) if queued else now
            if queued and self.until is None and now >= since + wait and self.begin():
                self.until = now + replay
            if self.until is not None and now >= self.until:
                self.end()
                self.until = None
            self.move(0.5)
            seen.append(self.seen())
        return seen


@contextmanager
def world(prepared, folder, **settings: Any) -> Iterator[World]:
    run = folder / "run"
    shutil.copytree(prepared, run)
    service = service_on(run, callback_hosts=("calls.example",), rate=1e6, **settings)
    service.worker.status = replace(service.worker.status, estimate_seconds=ESTIMATE)
    service.dispatcher.clock = service.dispatcher.monotonic = Clock()
    with served(service, Role.REQUESTER, Role.OPERATOR) as clients:
        yield World(service, *clients)
    service.stop()


@pytest.fixture
def pair(prepared, tmp_path):
    """Two services that differ in who is asked for."""
    with world(prepared, tmp_path / "a") as one, world(prepared, tmp_path / "b") as other:
        yield one, other


def completed_after(seen: list[Any]) -> float:
    """Seconds until the first request of a history is completed."""
    return next(step for step, one in enumerate(seen, 1) if one[0]["request_status"] == "completed") / 2


@pytest.mark.parametrize("replay", [0.0, 5.0, ESTIMATE, HOLD - 1])
def test_a_member_and_a_stranger_have_the_same_history(pair, replay):
    histories = []
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        one.ask(user)
        histories.append(one.history(replay))
    assert histories[0] == histories[1]
    assert completed_after(histories[0]) == 3.5 + HOLD
    expected = {seen[0]["expected_completion_time"] for seen in histories[0]}
    assert expected == {rfc3339(BASE + 1.25 * HOLD + 1 + QUEUE_SECONDS)}


@pytest.mark.parametrize("status", [None, RunStatus()])
def test_the_holds_are_the_same_before_the_worker_has_reported_an_estimate(pair, status):
    """The service was restarted, and sees the turn of a batch first; or meanwhile nobody can be forgotten."""
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        id_ = one.ask(user)
        one.dispatcher.tick()
        one.dispatcher.status = lambda: status
        one.begin()
        one.move(0.5)
        [batch] = one.service.batches.open()
        assert batch.busy_until - batch.turn == batch.finish_from - batch.turn == HOLD
        later = one.ask("3")
        answer = one.requester.get(f"{REQUESTS}/{later}").json()
        assert answer["expected_completion_time"] >= rfc3339(BASE + 2 * HOLD)
        if user == MEMBER:
            one.end()
        one.move(HOLD - 1)
        assert one.state(id_) == "in_progress"
        one.move(1.5)
        assert one.state(id_) == "completed"


@pytest.mark.parametrize("approval", [False, True])
def test_the_next_batch_starts_at_the_same_time(prepared, tmp_path, approval):
    histories = []
    for user in (MEMBER, STRANGER):
        with world(prepared, tmp_path / user, approval=approval) as one:
            first = one.ask(user)
            one.service.requests.approve(reference_of(first))
            one.dispatcher.tick()
            second = one.ask(STRANGER)
            if approval:
                one.service.requests.approve(reference_of(second))
            histories.append(one.history(ESTIMATE, total=60.0))
    assert histories[0] == histories[1]
    starts = [step for step, seen in enumerate(histories[0], 1) if seen[1]["request_status"] == "in_progress"]
    assert starts[0] / 2 == 3.5 + HOLD


@pytest.mark.parametrize("replay", [0.0, HOLD - 1])
@pytest.mark.parametrize("later", [0.0, 20.0, HOLD])
def test_nobody_waits_longer_than_expected(pair, later, replay):
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        one.ask(user)
        one.history(replay, QUEUE_SECONDS - 1, later)
        one.ask("3")
        one.history(replay, QUEUE_SECONDS - 1, 3 * HOLD)
        for id_ in one.ids:
            answer = one.requester.get(f"{REQUESTS}/{id_}").json()
            assert answer["request_status"] == "completed"
            assert answer["completed_time"] <= answer["expected_completion_time"]


def test_a_near_deadline_does_not_start_a_batch_beside_another_one(pair):
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        one.ask(user)
        one.dispatcher.tick()
        near = one.ask(STRANGER, submitted_time=rfc3339(BASE - 40 * 86400))
        assert one.begin() is (user == MEMBER)
        one.move(1.0)
        one.move(HOLD - 1)
        assert one.state(near) == "pending"
        if user == MEMBER:
            one.end()
        one.move(1.0)
        assert one.state(near) == "in_progress"


def test_an_operator_starts_a_batch_beside_another_one(pair):
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        one.ask(user)
        one.dispatcher.tick()
        second = one.ask(STRANGER)
        one.move(1.0)
        assert one.state(second) == "pending"
        one.operator.post("/v1/batches")
        one.move(1.0)
        assert one.state(second) == "in_progress"


def test_what_a_slow_replay_took_holds_for_everybody_after_it(pair):
    later = []
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        one.ask("3")
        slow = one.history(80.0)
        assert completed_after(slow) == 3.5 + 80.0, "slower than any replay before"
        one.ids.clear()
        one.ask(user)
        later.append(one.history(ESTIMATE))
    assert [seen[0] for seen in later[0]] == [seen[0] for seen in later[1]]
    assert completed_after(later[0]) == 3.5 + 1.25 * 80 + 1


def test_time_in_which_the_service_did_not_run_or_its_clock_was_set_does_not_count(prepared, tmp_path):
    with world(prepared, tmp_path) as one:
        one.ask("3")
        one.dispatcher.tick()
        one.begin()
        one.move(1.0)
        one.dispatcher.monotonic = lambda: BASE + 2
        one.move(2 * 86400)
        one.end()
        one.move(1.0)
        assert one.state(one.ids[0]) == "completed"
        assert one.dispatcher.duration() == HOLD
        one.ask("4")
        one.dispatcher.tick()
        one.begin()
        one.move(1.0)
        stopped = one.dispatcher.clock.now
    service = service_on(one.run, callback_hosts=("calls.example",))
    service.worker.status = replace(service.worker.status, estimate_seconds=ESTIMATE)
    service.dispatcher.clock = service.dispatcher.monotonic = Clock()
    service.dispatcher.clock.now = stopped + 2 * 86400
    again = World(service, None, None)
    again.end()
    again.move(0.0)
    assert service.requests.counts()[State.COMPLETED] == 2
    assert service.dispatcher.duration() == HOLD
    service.stop()


def test_what_devices_took_to_confirm_holds_for_everybody_after_it(pair, monkeypatch):
    """The next batch need not wait for devices."""
    states = []
    for one, user in zip(pair, (MEMBER, STRANGER), strict=True):
        monkeypatch.setattr(completion, "_confirmed", lambda receipt: False)
        first = one.ask("3")
        one.history(5.0, wait=0.0, total=200.0)
        assert one.state(first) == "in_progress"
        monkeypatch.setattr(completion, "_confirmed", lambda receipt: True)
        for path in one.run.glob("receipts/*.json"):
            os.utime(path, (BASE, BASE))
        one.move(0.5)
        assert one.state(first) == "completed"
        one.ids.clear()
        second = one.ask(user)
        seen = one.history(5.0, wait=0.0, total=300.0)
        states.append([each[0] for each in seen])
        assert completed_after(seen) == pytest.approx(0.5 + 1.25 * 200.0, abs=0.5)
        assert one.state(second) == "completed"
        assert one.service.batches.busy_until(one.dispatcher.clock()) == one.dispatcher.clock()
    assert states[0] == states[1]


@pytest.mark.parametrize(("given_up", "hold"), [(0, 1.25 * 200.0), (1, HOLD)])
def test_the_time_until_a_device_was_given_up_does_not_hold_others(prepared, tmp_path, monkeypatch, given_up, hold):
    read, counts = StoredReceipts.receipt, {"wiped": 1, "to_wipe": 2}
    monkeypatch.setattr(StoredReceipts, "receipt", lambda stored, request: replace(read(stored, request), **counts))
    monkeypatch.setattr(stored, "on_network", lambda run: True)
    with world(prepared, tmp_path) as one:
        first = one.ask(MEMBER)
        one.history(5.0, wait=0.0, total=200.0)
        assert one.state(first) == "in_progress"
        counts.update({"given_up": 1} if given_up else {"wiped": 2})
        for path in one.run.glob("receipts/*.json"):
            os.utime(path, (BASE, BASE))
        one.move(0.5)
        assert one.state(first) == "completed"
        assert one.dispatcher.holds().completion == pytest.approx(hold, abs=1.0)


def test_a_batch_that_only_waits_for_devices_is_not_busy(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(completion, "_confirmed", lambda receipt: False)
    with world(prepared, tmp_path) as one:
        first = one.ask(MEMBER)
        one.history(5.0, total=HOLD)
        second = one.ask("3")
        one.dispatcher.tick()
        assert one.state(second) == "pending"
        one.move(4.0)
        assert [one.state(id_) for id_ in (first, second)] == ["in_progress"] * 2


def test_a_replay_that_is_slower_than_the_hold_keeps_its_batch_busy(prepared, tmp_path):
    with world(prepared, tmp_path) as one:
        first = one.ask(MEMBER)
        one.dispatcher.tick()
        second = one.ask(STRANGER)
        one.begin()
        one.move(1.0)
        one.move(HOLD + 60)
        assert [one.state(id_) for id_ in (first, second)] == ["in_progress", "pending"]
        one.end()
        one.move(0.5)
        assert [one.state(id_) for id_ in (first, second)] == ["completed", "in_progress"]


@pytest.mark.parametrize("user", [MEMBER, STRANGER])
def test_near_its_deadline_a_request_does_not_wait_for_the_time_of_devices(prepared, tmp_path, user):
    with world(prepared, tmp_path) as one:
        one.ask("3")
        one.history(0.0, wait=0.0, total=60.0)
        with one.service.requests.writing() as db:
            db.execute("UPDATE batch SET confirmed = 25 * 86400")
        asked = one.dispatcher.clock()
        id_ = one.ask(user)
        one.dispatcher.tick()
        one.begin()
        one.move(1.0)
        if user == MEMBER:
            one.end()
        one.move(1.0)
        one.move(asked + 27 * 86400 - 5 - one.dispatcher.clock())
        assert one.state(id_) == "in_progress"
        one.move(6)
        assert one.state(id_) == "completed"


def test_a_replay_hold_beyond_the_deadline_is_kept_and_logged_once(prepared, tmp_path, caplog):
    with world(prepared, tmp_path, deadline="30s") as one, caplog.at_level("WARNING"):
        id_ = one.ask(STRANGER)
        one.dispatcher.tick()
        one.begin()
        one.move(1.0)
        one.move(HOLD - 1)
        assert one.state(id_) == "in_progress"
        one.move(1.0)
        assert one.state(id_) == "completed"
    assert caplog.text.count("requests miss their deadlines: the replay hold is 41 s, and the deadline 30 s") == 1


def test_a_request_whose_erasure_was_refused_stays_in_progress_for_whoever_asked(prepared, tmp_path):
    with world(prepared, tmp_path) as one:
        id_ = one.ask(MEMBER)
        one.dispatcher.tick()
        told = one.seen()
        [erasure] = ErasureQueue(one.run).waiting()
        ErasureQueue(one.run).refuse(erasure.id, "Too few devices answered.")
        one.move(0.5)
        assert one.seen() == told
        path = f"{REQUESTS}/{id_}"
        assert one.requester.delete(path).status_code == 400
        listed = one.operator.get("/v1/requests").json()["items"][0]
        assert (listed["state"], listed["note"]) == ("pending", "Too few devices answered.")
        second = one.ask(STRANGER)
        one.move(HOLD - 1)
        assert one.state(second) == "pending", "the refused batch is as busy as another one"
        one.move(1.0)
        assert one.state(second) == "in_progress"
        one.begin()
        one.move(1.0)
        one.move(600.0)
        assert one.service.requests.find(reference_of(id_)).state is State.IN_PROGRESS, "it is tried again"
        statuses = [body["request_status"] for body in one.seen()[2:]]
        assert statuses == ["in_progress", "in_progress", "completed"], "one callback for each change that is told"


def test_an_operator_may_cancel_what_was_refused(prepared, tmp_path):
    with world(prepared, tmp_path) as one:
        id_ = one.ask(MEMBER)
        one.dispatcher.tick()
        [erasure] = ErasureQueue(one.run).waiting()
        ErasureQueue(one.run).refuse(erasure.id, "Too few devices answered.")
        one.move(0.5)
        assert one.operator.post(f"/v1/requests/{reference_of(id_)}/cancel").status_code == 200
        assert one.state(id_) == "cancelled"
