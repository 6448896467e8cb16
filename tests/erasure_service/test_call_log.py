"""The audit log: every call is in it, changes before their answer, and nothing that identifies a user."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service import call_log
from fedforget.erasure_service.call_log import Call, CallLog
from fedforget.erasure_service.call_recorder import CallRecorder
from fedforget.erasure_service.middleware import CallId, SecurityHeaders
from fedforget.erasure_service.tokens import Holder, Role
from fedforget.errors import RunError

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
CALL = Call(NOW, "c0", "id", "dpo", "GET", "/v1/queue", 200, "192.0.2.1", "abcd", 0.25)
KEEP = timedelta(days=2)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_change_is_on_disk_when_its_future_is_done(tmp_path: Path) -> None:
    with closing(CallLog(tmp_path / "calls", KEEP, flush_seconds=60)) as log:
        log.add(CALL)
        log.add_durably(replace(CALL, method="POST")).result(5)
        assert [call.method for call in log.newest(10)] == ["POST", "GET"]
        (path,) = (tmp_path / "calls").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert log.lost == 0


def test_others_are_written_soon_and_at_the_end(tmp_path: Path) -> None:
    log = CallLog(tmp_path, KEEP, flush_seconds=0.01)
    log.add(CALL)
    eventually(lambda: log.newest(1) == [CALL])
    log.add(replace(CALL, status=404))
    log.close()
    assert [call.status for call in log.newest(10)] == [404, 200]
    log.add(CALL)
    with pytest.raises(RunError, match="closed"):
        log.add_durably(CALL).result()
    assert log.lost == 2


_TEXT = st.text(max_size=64)


@given(st.lists(st.builds(replace, st.just(CALL), method=_TEXT, route=_TEXT, holder_name=st.none() | _TEXT)))
def test_calls_round_trip(tmp_path_factory: pytest.TempPathFactory, calls: list[Call]) -> None:
    log = CallLog(tmp_path_factory.mktemp("calls"), KEEP)
    for call in calls:
        log.add(call)
    log.close()
    assert log.newest(1000) == calls[::-1]
    assert log.newest(2) == calls[::-1][:2]


def test_a_new_file_each_day_and_when_one_is_large(tmp_path: Path) -> None:
    clock = Clock()
    with closing(CallLog(tmp_path, KEEP, most_bytes=300, clock=clock)) as log:
        for number in range(4):
            log.add_durably(replace(CALL, status=number)).result(5)
        clock.now += timedelta(days=1)
        log.add_durably(replace(CALL, status=4)).result(5)
        first, second = "calls-2026-11-18-000001.jsonl", "calls-2026-11-18-000002.jsonl"
        assert names(tmp_path) == [first, second, "calls-2026-11-19-000001.jsonl"]
        assert [call.status for call in log.newest(10)] == [4, 3, 2, 1, 0]
    with closing(CallLog(tmp_path, KEEP, most_bytes=300, clock=clock)) as log:
        log.add_durably(replace(CALL, status=5)).result(5)
        assert [call.status for call in log.newest(3)] == [5, 4, 3]
        assert len(names(tmp_path)) == 3
        clock.now += timedelta(days=2)
        log.delete_old()
        assert names(tmp_path) == ["calls-2026-11-19-000001.jsonl"]
        clock.now += timedelta(days=1)
        log.delete_old()
        assert names(tmp_path) == []
        log.add_durably(replace(CALL, status=6)).result(5)
        assert names(tmp_path) == ["calls-2026-11-22-000001.jsonl"]


def test_a_client_that_goes_away_does_not_stop_the_log(tmp_path: Path) -> None:
    with closing(CallLog(tmp_path, KEEP)) as log:
        for _ in range(20):
            assert not log.add_durably(CALL).cancel()
        log.add_durably(CALL).result(5)
        assert len(log.newest(100)) == 21


def test_a_call_that_is_cancelled_is_recorded_without_an_answer(tmp_path: Path) -> None:
    async def hangs(*_: Any) -> None:
        await asyncio.sleep(3600)

    async def cancelled(log: CallLog) -> None:
        scope = {"type": "http", "method": "GET", "headers": []}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(CallRecorder(hangs, log)(scope, None, None), 0.01)  # type: ignore[arg-type]

    log = CallLog(tmp_path, KEEP)
    asyncio.run(cancelled(log))
    log.close()
    assert [call.status for call in log.newest(10)] == [0]


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "calls-2026-11-18-000001.jsonl"
    path.write_bytes(b'{"time": "2026-11-18T1')
    with closing(CallLog(tmp_path, KEEP, clock=Clock())) as log:
        log.add_durably(CALL).result(5)
        assert log.newest(10) == [CALL]


def test_a_disk_that_is_full_is_told_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(handle: int, data: bytes) -> int:
        write(handle, data[:10])
        raise OSError(28, "No space left on device")

    with closing(CallLog(tmp_path, KEEP)) as log:
        monkeypatch.setattr(call_log.os, "write", full)
        with pytest.raises(RunError, match="No space left"):
            log.add_durably(CALL).result(5)
        assert log.problem is not None
        assert "No space left" in log.problem
        monkeypatch.setattr(call_log.os, "write", write)
        log.add_durably(CALL).result(5)
        assert log.problem is None
        assert log.lost == 1
        assert log.newest(10) == [CALL]


def test_changes_outlive_a_kill(tmp_path: Path) -> None:
    code = f"""
import os, signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from fedforget.erasure_service.call_log import Call, CallLog
log = CallLog(Path({str(tmp_path)!r}), timedelta(days=2))
for number in range(20):
    log.add_durably(Call(datetime.now(UTC), str(number), None, None, "POST", "/", 201, "a", None, 1.0)).result()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    with closing(CallLog(tmp_path, KEEP)) as log:
        assert [call.call_id for call in log.newest(100)] == [str(number) for number in reversed(range(20))]


def test_many_threads_lose_nothing_and_a_read_costs_little(tmp_path: Path) -> None:
    log = CallLog(tmp_path, KEEP)
    seconds: list[float] = []

    def write(thread: int) -> None:
        started = time.thread_time()
        for number in range(1000):
            log.add(replace(CALL, call_id=f"{thread} {number}"))
        seconds.append(time.thread_time() - started)
        log.add_durably(replace(CALL, call_id=f"{thread} last")).result(5)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    log.close()
    assert log.lost == 0
    assert len({call.call_id for call in log.newest(10_000)}) == 4 * 1001
    assert min(seconds) / 1000 < 1e-4  # the others may have collected garbage of other tests


@pytest.fixture
def client(tmp_path: Path) -> Any:
    """A FastAPI application in the layers of the service, with the log that it writes."""
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("starlette.testclient")
    router = fastapi.APIRouter(prefix="/v1")

    @router.api_route("/requests/{request_id}", methods=["GET", "POST"])
    def request(request_id: str, request: fastapi.Request) -> str:
        request.state.holder = Holder("id", "dpo", Role.AUDITOR, "id")
        request.state.reference = "abcd"
        return request_id

    @router.get("/fails")
    def fails() -> None:
        raise RuntimeError("unexpected")

    api = fastapi.FastAPI()
    api.include_router(router)
    log = CallLog(tmp_path, KEEP, flush_seconds=60)
    client = testclient.TestClient(CallId(SecurityHeaders(CallRecorder(api, log))), raise_server_exceptions=False)
    client.log = log
    yield client
    log.close()


def test_a_call_is_recorded_by_route_holder_and_reference(client: Any, tmp_path: Path) -> None:
    client.get("/v1/requests/11111111?user=somebody", headers={"Authorization": "Bearer ff_secret"})
    answer = client.post("/v1/requests/22222222")
    newest, first = client.log.newest(10)
    assert (newest.method, newest.route, newest.status) == ("POST", "/v1/requests/{request_id}", 200)
    assert (newest.holder_id, newest.holder_name, newest.reference) == ("id", "dpo", "abcd")
    assert newest.call_id == answer.headers["x-request-id"] != first.call_id
    assert newest.milliseconds > 0
    (path,) = tmp_path.iterdir()
    assert not any(text in path.read_text() for text in ("1111", "2222", "somebody", "ff_secret"))


def test_also_what_fails_is_recorded(client: Any) -> None:
    assert [client.get("/v1/fails").status_code, client.post("/no/such/user").status_code] == [500, 404]
    client.log.close()
    assert [(call.route, call.status) for call in client.log.newest(2)] == [("unmatched", 404), ("/v1/fails", 500)]


def test_a_change_that_cannot_be_recorded_is_not_answered_as_done(client: Any) -> None:
    client.log.close()
    answer = client.post("/v1/requests/1")
    assert answer.status_code == 503
    assert "audit log" in answer.json()["detail"]
    assert answer.headers["cache-control"] == "no-store"
    assert client.get("/v1/requests/1").status_code == 200
