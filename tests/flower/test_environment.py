"""Nothing leaves the machine but the messages of the federation, and what stays on it needs no proxy."""

from __future__ import annotations

import os
import re
import sysconfig
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import flwr
from flwr.common import constant as common
from flwr.supercore import constant as core
from flwr.supercore import telemetry

from fedforget.flower.testbed.environment import POLL_SECONDS, QUIET, environment


def test_every_switch_of_flower_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in QUIET:
        monkeypatch.setenv(name, "wrong")
    made = environment(tmp_path)
    assert {name: made[name] for name in QUIET} == dict(QUIET)
    assert made["FLWR_TELEMETRY_ENABLED"] == "0"
    assert made[core.FLWR_DISABLE_UPDATE_CHECK] == "1"
    assert made[common.FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION] == "1"
    assert made[common.FLWR_INTERNAL_GRPC_CONTROL_API] == "0"
    assert made[common.FLWR_INTERNAL_GRPC_FLEET_API] == "0"
    assert made[common.FLWR_HOME] == str(tmp_path)


def test_flower_still_reads_every_switch() -> None:
    """A switch that Flower renamed would be set in vain."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(flwr.__file__).parent.rglob("*.py"))
    for name in (*QUIET, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "FLWR_HOME"):
        assert f'"{name}"' in source, name


def test_flower_has_no_new_switch_against_talking() -> None:
    """A switch that Flower added should be looked at, and set or waved through here."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(flwr.__file__).parent.rglob("*.py"))
    read = set(re.findall(r'"(FLWR_(?:DISABLE|TELEMETRY|TRACING|ENABLE|INTERNAL)_\w+)"', source))
    assert read - {"FLWR_TELEMETRY_PARTNER_ID"} == set(QUIET)


def test_telemetry_that_is_off_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(*_: object, **__: object) -> None:
        raise AssertionError("something was sent")

    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setattr(telemetry, "FLWR_TELEMETRY_ENABLED", environment(tmp_path)["FLWR_TELEMETRY_ENABLED"])
    monkeypatch.setattr(urllib.request, "urlopen", sent)
    assert telemetry.create_event(telemetry.EventType.PING, None) == "disabled"


def test_flower_accepts_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.superexec import run_superexec

    monkeypatch.setattr(os, "environ", environment(tmp_path))
    assert run_superexec._get_task_poll_interval() == float(POLL_SECONDS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "127.0.0.1,localhost"),
        ("", "127.0.0.1,localhost"),
        ("example.org, 127.0.0.1", "example.org,127.0.0.1,localhost"),
        ("*", "*"),
    ],
)
def test_loopback_bypasses_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example.org:3128")
    if given is not None:
        monkeypatch.setenv("NO_PROXY", given)
    made = environment(tmp_path)
    assert made["NO_PROXY"] == made["no_proxy"] == expected
    monkeypatch.setattr(os, "environ", made)
    assert urllib.request.proxy_bypass_environment("127.0.0.1:8000")
    assert urllib.request.proxy_bypass_environment("localhost")


def test_the_client_of_flower_takes_no_proxy_to_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    httpx = pytest.importorskip("httpx")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setattr(os, "environ", environment(tmp_path))
    with httpx.Client() as client:
        direct = client._transport_for_url(httpx.URL("https://127.0.0.1:8000/v1/fleet/pull-messages"))
        proxied = client._transport_for_url(httpx.URL("https://example.org/"))
        assert direct is client._transport
        assert proxied is not client._transport


def test_the_scripts_of_this_interpreter_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setenv("PATH", "/usr/bin")
    assert environment(tmp_path)["PATH"] == f"{scripts}{os.pathsep}/usr/bin"
    monkeypatch.delenv("PATH")
    assert environment(tmp_path)["PATH"] == scripts


def test_the_rest_of_the_environment_is_passed_on_and_ours_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFORGET_PROBE", "here")
    before = dict(os.environ)
    assert environment(tmp_path)["FEDFORGET_PROBE"] == "here"
    assert dict(os.environ) == before
