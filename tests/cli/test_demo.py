"""``fedforget demo`` as a real process: a request through the API, a stop, and the same folder continued."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.cli import demo as demo_command
from fedforget.erasure_service import serving
from fedforget.erasure_service.settings import ServiceSettings
from tests.cli.conftest import Shell
from tests.erasure_service.processes import wait_for
from tests.erasure_service.runs import REQUESTS
from tests.small_federations import trained

#: Seconds; the first start compiles kernels on a machine without them.
PATIENCE = 180.0
LAST_LINE = "Ctrl-C stops"


@contextmanager
def demo(out: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The demo and what it printed; interrupted at the end."""
    command = [sys.executable, "-m", "fedforget", "demo", "--out", str(out), "--port", "0", "--rounds", "16"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    printed, errors = [], []
    readers = [
        threading.Thread(target=lambda: printed.extend(process.stdout or ()), daemon=True),
        threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        wait_for(lambda: LAST_LINE in "".join(printed) or process.poll() is not None, PATIENCE, "it serves")
        assert process.poll() is None, "".join(errors)
        yield process, "".join(printed)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "".join(errors)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def shown(printed: str) -> tuple[str, dict[str, str]]:
    """The address, and the tokens by role."""
    url = re.search(r"The page: (http://\S+)/", printed)
    assert url is not None
    return url[1], dict(re.findall(r"^  (\w+) +(ff_\w+)$", printed, re.MULTILINE))


@pytest.mark.slow
def test_a_request_is_carried_out_and_the_demo_continues(tmp_path: Path) -> None:
    with demo(tmp_path / "demo") as (_, printed):
        url, tokens = shown(printed)
        assert set(tokens) == {"requester", "operator", "auditor"}
        headers = {role: {"Authorization": f"Bearer {token}"} for role, token in tokens.items()}
        with httpx.Client(base_url=url, timeout=30) as client:
            wait_for(lambda: client.get("/v1/ready").status_code == 200, PATIENCE, "it is ready")
            first = client.get("/v1/receipts", headers=headers["auditor"]).json()["items"]
            assert len(first) == 1
            accuracy = client.get("/v1/devices", headers=headers["auditor"]).json()["accuracy"]
            assert [point["round"] for point in accuracy] == [12, 14, 16]
            body = {
                "regulation": "gdpr",
                "subject_request_id": str(uuid.uuid4()),
                "subject_request_type": "erasure",
                "submitted_time": datetime.now(UTC).isoformat(),
                "subject_identities": [{"identity_type": "controller_customer_id", "identity_value": "3"}],
            }
            assert client.post(REQUESTS, json=body, headers=headers["requester"]).status_code == 201
            where = f"{REQUESTS}/{body['subject_request_id']}"
            wait_for(
                lambda: client.get(where, headers=headers["requester"]).json()["request_status"] == "completed",
                PATIENCE,
                "the request is completed",
            )
            assert len(client.get("/v1/receipts", headers=headers["auditor"]).json()["items"]) == 2

    with demo(tmp_path / "demo") as (_, printed):
        url, again = shown(printed)
        assert again == {}
        assert "Tokens were shown at the first start" in printed
        with httpx.Client(base_url=url, timeout=30, headers=headers["operator"]) as client:
            assert len(client.get("/v1/receipts").json()["items"]) == 2


def test_a_folder_with_something_else_is_left_alone(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    shell("demo", "--out", tmp_path, fails=1)
    assert "has other files in it" in shell.errors
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_it_takes_settings_of_the_service(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[ServiceSettings] = []
    monkeypatch.setattr(serving, "serve", lambda run, settings, ready: served.append(settings))
    monkeypatch.setattr(demo_command, "_prepare", lambda run, rounds: 1)
    monkeypatch.setattr(demo_command, "_tokens", lambda run: {})
    options = ("--batch-every", "1h", "--batch-size", 5, "--callback-host", "a.example")
    shell("demo", "--out", tmp_path / "demo", *options, "--callback-private", "127.0.0.1:8799")
    (settings,) = served
    assert (settings.batch_every, settings.batch_size) == ("1h", 5)
    assert settings.callback_targets == ("a.example", "127.0.0.1:8799")
    shell("demo", "--out", tmp_path / "other", "--callback-host", "https://a.example", fails=1)
    assert not (tmp_path / "other").exists()


def test_a_run_that_the_demo_did_not_make_is_left_alone(shell: Shell, tmp_path: Path) -> None:
    trained(tmp_path / "run").close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shell("demo", "--out", tmp_path, fails=1)
    assert f"{tmp_path / 'run'} was not made by fedforget demo" in shell.errors.replace("\n", " ")
    assert "with --out" in shell.errors
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_number_of_rounds_is_checked(shell: Shell, tmp_path: Path) -> None:
    shell("demo", "--out", tmp_path / "demo", "--rounds", 0, fails=1)
    assert "rounds is 0" in shell.errors
    assert not (tmp_path / "demo").exists()
