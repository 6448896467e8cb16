"""The files of ``deploy/``: the example of settings is complete and accepted, and units are valid."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fedforget.erasure_service.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def test_the_example_of_settings_names_every_setting_with_its_default() -> None:
    values = tomllib.loads((DEPLOY / "serve.toml").read_text())
    assert set(values) == {field.name for field in fields(ServiceSettings)}
    assert ServiceSettings.build({}, DEPLOY / "serve.toml") == ServiceSettings()


def test_options_take_precedence_over_the_example() -> None:
    settings = ServiceSettings.build({"port": 0, "batch_every": None}, DEPLOY / "serve.toml")
    assert (settings.port, settings.batch_every) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
    result = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_confined(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-200:]


def test_the_device_is_started_as_in_the_guide() -> None:
    pattern = re.compile(r"^ExecStart=\S+/flower-supernode (?:.*\\\n)*.*", re.MULTILINE)
    found = [
        pattern.search(path.read_text()) for path in (ROOT / "docs/deploy.md", DEPLOY / "fedforget-device.service")
    ]
    guide, unit = (" ".join(one[0].split()) for one in found if one is not None)
    assert guide == unit


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 1)])
def test_the_health_check_tells_whether_the_service_answers(status: int | None, code: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status or 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port if status else 1
        environment = {**os.environ, "FEDFORGET_HEALTH_URL": f"http://127.0.0.1:{port}/v1/health"}
        done = subprocess.run([sys.executable, DEPLOY / "healthcheck.py"], env=environment)
        server.shutdown()
    assert done.returncode == code
