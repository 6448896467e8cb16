"""The worker beside a server on a network: it only reads, also while the server writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

import fedforget as ff
from fedforget.erasure_service import worker as module
from fedforget.erasure_service.status import Progress, RunStatus
from fedforget.erasure_service.worker import RunWorker
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest
from tests.flower.worlds import NODES, TRAIN, USERS, OnFlower
from tests.small_federations import contents

ROUNDS = 6


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnFlower]:
    monkeypatch.setattr(module, "READING_SHARE", 1e9)
    with closing(OnFlower(tmp_path)) as made:
        yield made


def watched(world: OnFlower) -> tuple[RunWorker, list[RunStatus]]:
    reports: list[RunStatus] = []
    return RunWorker(world.run, reports.append), reports


def test_the_status_of_a_run_on_a_network(world):
    worker, reports = watched(world)
    worker.turn()
    assert (reports[-1].rounds, reports[-1].members, reports[-1].estimate_seconds) == (0, len(USERS), 0.0)
    world.train(2)
    world.disconnect(101)
    world.train(3)
    world.service.evaluate()
    worker.turn()
    status = reports[-1]
    assert (status.engine, status.federation) == ("flower", world.service.config.id)
    assert (status.rounds, status.members, status.items, status.nodes) == (3, len(USERS), TRAIN.n_items, NODES)
    assert (status.estimate_seconds or 0) > 0
    assert [each.round for each in status.accuracy] == [3]
    last = status.recent[-1]
    assert last.asked == last.answered + sum(last.failures.values())
    assert last.failures
    assert all(status.error is None for status in reports)
    assert not [user for user in USERS if user in status.to_line()]


def test_the_progress_of_an_erasure_on_the_network_is_read_while_the_server_works(world):
    world.train(ROUNDS)
    worker, reports = watched(world)
    worker.turn()
    users = [user for user in USERS if world.history.first_round_of([user]) == 1][:1]
    request = ErasureRequest.new(users, ff.FRU(0.4, stride=1).settings())
    ErasureQueue(world.run).add(request)
    worker.turn()
    assert ErasureQueue(world.run).waiting() == [request], "the server's process carries it out"
    world.service.serve(ROUNDS, tell=lambda line: worker.turn())
    worker.turn()
    progress = [status.progress for status in reports if status.waiting == request.id]
    assert [each for each in progress if each and each.total] == [Progress(n, ROUNDS) for n in range(1, ROUNDS + 1)]
    assert (reports[-1].trajectory, reports[-1].members, reports[-1].waiting) == (2, len(USERS) - 1, None)
    assert all(status.error is None for status in reports)


def test_a_request_that_is_queued_again_after_its_receipt_is_only_removed(world):
    world.train(2)
    request = ErasureRequest.new(USERS[:1], ff.FRU(0.4).settings())
    for _ in range(2):
        ErasureQueue(world.run).add(request)
        world.service.serve(2)
    assert [receipt.request for receipt in world.service.receipts()] == [request.id]
    assert (world.service.queue.waiting(), world.service.queue.refused()) == ([], {})


def test_reading_changes_nothing(world):
    world.train(3)
    world.service.close()
    before = contents(world.run)
    worker, reports = watched(world)
    for _ in range(3):
        worker.turn()
    assert len(reports) == 1
    assert contents(world.run) == before
    world.service = world._open()


def test_beside_a_server_no_code_of_devices_is_loaded(world):
    world.train(1)
    code = (
        "import sys, pathlib; from fedforget.erasure_service.worker import RunWorker\n"
        "RunWorker(pathlib.Path(sys.argv[1]), lambda status: print(status.rounds)).turn()\n"
        "print(*(name for name in sys.modules if name.startswith(('fedforget.device', 'fedforget.simulation'))))"
    )
    command = [sys.executable, "-c", code, str(world.run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1"]
