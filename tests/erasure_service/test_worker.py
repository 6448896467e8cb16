"""What the worker process reports of a run, and how it carries out the queue; in this process."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.erasure_service import worker as module
from fedforget.erasure_service.retry import Retry
from fedforget.erasure_service.run_reader import RunReader
from fedforget.erasure_service.status import Accuracy, Progress, RoundSummary, RunStatus
from fedforget.erasure_service.worker import RunWorker, reason_of
from fedforget.errors import RunError
from fedforget.runtime.files import only_writer
from fedforget.runtime.randomness import UserId
from fedforget.server.erasure_queue import NO_MEMBER, ErasureQueue
from fedforget.server.history import History
from fedforget.server.request import ErasureRequest
from tests.small_federations import first_in, named, trained

DATA = named()
METHOD = ff.FRU(0.4, stride=3).settings()


@dataclass(frozen=True)
class Base:
    """A trained run to be copied, and users in it."""

    run: Path
    users: list[UserId]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    run = tmp_path_factory.mktemp("base") / "run"
    train, test = DATA.split(0.2, 0)
    with closing(trained(run, train, rounds=0, test=test)) as fed:
        fed.fit(rounds=8, test=test, evaluate_every=4)
        return Base(run, first_in(fed, 2, 3))


@pytest.fixture
def run(base: Base, tmp_path: Path) -> Path:
    shutil.copytree(base.run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def worker(run: Path) -> tuple[RunWorker, list[RunStatus]]:
    reports: list[RunStatus] = []
    return RunWorker(run, reports.append), reports


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses."""
    monkeypatch.setattr(module, "SHORTEST", 0.0)
    monkeypatch.setattr(module, "READING_SHARE", 1e9)
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0))


def asked(*users: UserId) -> ErasureRequest:
    return ErasureRequest.new(users, METHOD)


def test_a_status_survives_the_way_to_the_parent():
    status = RunStatus(
        engine="simulation",
        method={"name": "fru", "stride": None},
        progress=Progress(3, 8),
        recent=(RoundSummary(1, 10, 9, {"no response": 1}, 0.5, None),),
        accuracy=(Accuracy(4, 10, 40, {"ndcg": 0.1}, {"ndcg": 0.2}),),
    )
    assert RunStatus.from_line(status.to_line().encode()) == status
    assert RunStatus.from_line(RunStatus().to_line().encode()) == RunStatus()


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"1", b'{"progress": 1}', b'{"recent": [{}]}', b"\xff"])
def test_a_line_that_is_no_status_is_none(line):
    assert RunStatus.from_line(line) is None


def test_the_status_of_a_simulated_run(base, worker):
    one, reports = worker
    one.turn()
    (status,) = reports
    with closing(ff.Federation.open(base.run)) as fed:
        record = fed.history.record(8)
        assert (status.federation, status.rounds, status.members) == (fed.config.id, 8, len(fed.members))
        assert status.items == fed.n_items
        assert status.recent[-1] == RoundSummary(8, 10, 10, {}, record.seconds, record.loss)
        estimate = fed.estimate([fed.cohort(1)[0]]).seconds
    assert (status.engine, status.model, status.nodes, status.trajectory) == ("simulation", "mf", None, 1)
    assert status.method == ff.FRU().settings()
    assert [each.round for each in status.recent] == list(range(1, 9))
    assert [each.round for each in status.accuracy] == [4, 8]
    assert {*status.accuracy[0].full, *status.accuracy[0].sampled} == {"hr", "ndcg", "recall"}
    assert status.estimate_seconds == pytest.approx(estimate)
    assert (status.waiting, status.progress, status.error, status.fallbacks) == (None, None, None, 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", status.updated)


def test_a_run_that_stands_still_is_not_read_again(worker, monkeypatch):
    one, reports = worker
    for _ in range(3):
        one.turn()
    monkeypatch.setattr(RunReader, "read", lambda _: pytest.fail("it was read again"))
    for _ in range(3):
        one.turn()
    assert len(reports) == 1


def test_the_status_follows_the_training_of_another_process(run, worker):
    one, reports = worker
    one.turn()
    with closing(ff.Federation.open(run)) as fed:
        fed.fit(rounds=10)
        one.turn()
        assert reports[-1].rounds == 10
        fed.forget([fed.cohort(1)[0]])
        one.turn()
    assert (reports[-1].trajectory, reports[-1].members) == (2, reports[0].members - 1)
    assert all(status.error is None for status in reports)


def test_a_run_before_its_first_round(tmp_path):
    with closing(trained(tmp_path / "run", rounds=0)):
        status = RunReader(tmp_path / "run").read()
    assert (status.rounds, status.recent, status.estimate_seconds) == (0, (), 0.0)


def test_the_queue_is_carried_out_and_its_progress_is_reported(base, run, worker):
    one, reports = worker
    requests = [asked(base.users[0]), asked("somebody"), asked(base.users[1])]
    for request in requests:
        ErasureQueue(run).add(request)
    one.turn()
    seen = [(status.waiting, status.progress) for status in reports]
    for request, trajectory in ((requests[0], 1), (requests[2], 2)):
        of_it = [progress for waiting, progress in seen if waiting == request.id]
        assert of_it == [Progress(0, 0), *(Progress(done, 7) for done in (1, 4, 7))]
        assert {status.trajectory for status in reports if status.waiting == request.id} == {trajectory}
    assert seen[-1] == (None, None)
    assert (reports[-1].trajectory, reports[-1].members) == (3, reports[0].members - 2)
    assert ErasureQueue(run).refused() == {requests[1].id: NO_MEMBER}


def test_the_end_of_an_erasure_is_reported_at_once_however_long_reading_takes(base, run, worker, monkeypatch):
    monkeypatch.setattr(module, "READING_SHARE", 1e-9)
    one, reports = worker
    one.turn()
    ErasureQueue(run).add(asked(base.users[0]))
    one.turn()
    assert (reports[-1].waiting, reports[-1].trajectory) == (None, 2)


def test_no_report_names_a_user(base, run, worker):
    one, reports = worker
    ErasureQueue(run).add(asked(*base.users))
    one.turn()
    text = "".join(status.to_line() for status in reports)
    assert len(reports) > 3
    assert not [user for user in DATA.user_ids.tolist() if user in text]


def test_while_another_process_writes_the_queue_waits_and_the_status_says_so(base, run, worker):
    one, reports = worker
    ErasureQueue(run).add(asked(base.users[0]))
    with only_writer(run):
        one.turn()
    assert "Another process is writing" in (reports[-1].error or "")
    one.turn()
    assert (reports[-1].error, reports[-1].trajectory) == (None, 2)


def test_an_erasure_that_fails_is_reported_once_and_tried_again(base, run, worker, monkeypatch):
    one, reports = worker
    ErasureQueue(run).add(request := asked(base.users[0]))
    with monkeypatch.context() as patch:
        patch.setattr(History, "commit", lambda *_: (_ for _ in ()).throw(ValueError(f"of {base.users[0]}")))
        for _ in range(3):
            one.turn()
    errors = [status.error for status in reports if status.error]
    assert errors
    assert all(re.fullmatch(r"ValueError in test_worker\.py, line \d+\.", error) for error in errors)
    assert reports[-1].waiting == request.id
    one.turn()
    assert (reports[-1].error, reports[-1].waiting, reports[-1].trajectory) == (None, None, 2)
    assert (run / "receipts" / f"{request.id}.json").exists()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "configuration": lambda run: (run / "config.toml").write_text("="),
    "history": lambda run: (run / "trajectory-1" / "history.sqlite").write_bytes(b"damaged" * 1000),
    "request": lambda run: (run / "request.json").write_text("{"),
    "all of it": lambda run: shutil.rmtree(run),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("before", [False, True], ids=["from the start", "later"])
def test_damage_is_reported_until_it_is_repaired(damage, before, base, run):
    reports: list[RunStatus] = []
    one = RunWorker(run, reports.append)
    if before:
        one.turn()
    DAMAGES[damage](run)
    for _ in range(3):
        one.turn()
    assert reports[-1].error
    assert reports[-1].rounds == (8 if before else 0)
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(base.run, run)
    one.turn()
    one.turn()
    assert (reports[-1].error, reports[-1].rounds) == (None, 8)


def test_only_errors_about_files_are_shown_whole():
    assert reason_of(RunError("x is damaged.", "Restore it.")) == "x is damaged. Restore it."
    assert reason_of(ff.ConfigError("There is no user 17.")) == "ConfigError."


def test_a_status_is_repeated_only_after_some_time(worker, monkeypatch):
    one, reports = worker
    one.beat()
    assert reports == []
    one.turn()
    one.beat()
    assert len(reports) == 1
    monkeypatch.setattr(module, "LONGEST", 0.0)
    one.beat()
    assert reports[1] == replace(reports[0], updated=reports[1].updated)


def test_a_status_is_repeated_also_if_the_run_cannot_be_read(tmp_path, monkeypatch):
    reports = []
    one = RunWorker(tmp_path / "nothing", reports.append)
    for _ in range(3):
        one.turn()
    monkeypatch.setattr(module, "LONGEST", 0.0)
    one.beat()
    assert reports[0].error is not None
    assert [report.error for report in reports[1:]] == [reports[0].error]


def test_pauses_double_up_to_the_longest():
    retry, pauses = Retry(1.0, 10.0), []
    for _ in range(6):
        retry.failed()
        pauses.append(retry.pause)
    assert pauses == [1, 2, 4, 8, 10, 10]
    assert not retry.allows()
    retry.succeeded()
    assert retry.allows()
    assert retry.pause == 0
