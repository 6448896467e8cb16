"""The worker as a real process: it is light to hold, and a kill of it at any time loses and repeats nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.erasure_service import worker_client
from fedforget.erasure_service.worker_client import MODULE, Worker
from fedforget.runtime.randomness import UserId
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest
from tests.small_federations import first_in, trained

HEAVY = {"torch", "numpy", "numba", "polars", "safetensors", "fedforget.models", "fedforget.simulation"}
LIGHT = [
    "fedforget.erasure_service.worker_client",
    "fedforget.erasure_service.status",
    "fedforget.server.erasure_queue",
    "fedforget.server.receipt",
    "fedforget.server.config_file",
]
METHOD = ff.FRU(0.4, stride=1).settings()
PATIENCE = 60.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trained(tmp_path / "run").close()
    return tmp_path / "run"


@contextmanager
def started(run: Path) -> Iterator[Worker]:
    worker = Worker(run, poll=0.1)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        assert not worker.alive


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.01)


def asked(run: Path, *users: UserId) -> ErasureRequest:
    request = ErasureRequest.new(users, METHOD)
    ErasureQueue(run).add(request)
    return request


def leavers(run: Path, n: int) -> list[UserId]:
    with closing(ff.Federation.open(run)) as fed:
        return first_in(fed, 1, n)


@pytest.mark.parametrize("module", LIGHT)
def test_what_the_http_process_imports_is_light(module):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not HEAVY & set(done.stdout.split())


def test_requests_are_carried_out_and_other_processes_may_forget_in_between(run):
    one, other, last = leavers(run, 3)
    with started(run) as worker:
        until(lambda: worker.status, "a first report")
        first = asked(run, one)
        worker.wake()
        until(lambda: worker.status.trajectory == 2, "the first erasure is done")
        with closing(ff.Federation.open(run)) as fed:
            fed.forget([other])
        until(lambda: worker.status.trajectory == 3, "the erasure of another process is seen")
        second = asked(run, last)
        until(lambda: worker.status.trajectory == 4 and worker.status.waiting is None, "the second erasure is done")
        assert worker.alive
        assert worker.status.error is None
    with closing(ff.Federation.open(run)) as fed:
        assert [receipt.request for receipt in fed.receipts()][::2] == [first.id, second.id]
        assert not {one, other, last} & set(fed.members)


def test_killed_again_and_again_each_request_is_carried_out_once(run, monkeypatch):
    monkeypatch.setattr(worker_client, "PAUSES", (0.0, 0.0))
    users, dice = leavers(run, 6), random.Random(0)
    requests = [asked(run, user) for user in users]
    kills = 0
    with started(run) as worker:
        while not all((run / "receipts" / f"{request.id}.json").exists() for request in requests):
            until(
                lambda: worker.status is not None and (worker.status.waiting or worker.status.trajectory == 7), "work"
            )
            time.sleep(dice.uniform(0.0, 0.15))
            if worker.alive and kills < 6:
                before = worker.pid
                os.kill(before, signal.SIGKILL)
                kills += 1
                until(lambda before=before: worker.pid != before, "another process")
        until(lambda: worker.alive and worker.status.trajectory == 7 and not worker.status.waiting, "all is done")
    assert kills >= 3
    with closing(ff.Federation.open(run)) as fed:
        assert [receipt.request for receipt in fed.receipts()] == [request.id for request in requests]
        assert not set(users) & set(fed.members)
        assert len(fed.members) == 34


def test_it_is_known_for_how_long_the_process_has_not_reported(run):
    (user,) = leavers(run, 1)
    with started(run) as worker:
        until(lambda: worker.status, "a first report")
        os.kill(worker.pid, signal.SIGSTOP)
        until(lambda: worker.silent_seconds > 0.2, "nothing is reported")
        os.kill(worker.pid, signal.SIGCONT)
        asked(run, user)
        worker.wake()
        until(lambda: worker.silent_seconds < 0.1, "something is reported")


def test_it_ends_with_its_parent_and_leaves_the_erasure_to_be_continued(run):
    request = asked(run, *leavers(run, 1))
    child = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert b'"simulation"' in child.stdout.readline()
        _, errors = child.communicate(timeout=PATIENCE)  # closes its standard input
    assert (child.returncode, errors) == (0, b"")
    with started(run):
        until((run / "receipts" / f"{request.id}.json").exists, "the erasure")


def test_sigterm_ends_it_at_once(run):
    asked(run, *leavers(run, 1))
    child = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        while b'"progress": {' not in child.stdout.readline():
            pass
        child.terminate()
        started_at = time.monotonic()
        child.wait(PATIENCE)
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert child.returncode == -signal.SIGTERM
    assert time.monotonic() - started_at < 5
    assert not list(run.glob("receipts/*"))


def test_a_worker_that_cannot_be_started_does_no_harm(run):
    worker = Worker(run, python="/nonexistent/python")
    worker.start()
    worker.wake()
    time.sleep(0.1)
    assert not worker.alive
    assert worker.status is None
    worker.stop()
    worker.stop()


def test_it_can_be_stopped_and_started_again(run):
    with started(run) as worker:
        until(lambda: worker.status, "a report")
        first = worker.pid
        worker.stop()
        worker.wake()
        worker.start()
        until(lambda: worker.alive and worker.pid != first, "another process")
