"""The options of ``fedforget serve``: each has an environment variable."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.erasure_service import serving
from fedforget.erasure_service.settings import ServiceSettings
from tests.cli.conftest import Shell


def test_settings_with_several_values_have_environment_variables(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[ServiceSettings] = []
    monkeypatch.setattr(serving, "serve", lambda run, settings, ready: served.append(settings))
    for name, value in {
        "CALLBACK_HOST": "a.example b.example:8443",
        "CALLBACK_PRIVATE": "10.0.0.7:8000",
        "AUDITS": "one two",
        "BEHIND_PROXY": "1",
        "PROXIES": "10.0.0.4 10.0.1.0/24",
    }.items():
        monkeypatch.setenv(f"FEDFORGET_SERVE_{name}", value)
    shell("serve", tmp_path)
    (settings,) = served
    assert settings.callback_hosts == ("a.example", "b.example:8443")
    assert settings.callback_private == ("10.0.0.7:8000",)
    assert settings.audits == ("one", "two")
    assert settings.proxies == ("10.0.0.4", "10.0.1.0/24")


def test_a_callback_host_is_no_url(shell: Shell, tmp_path: Path) -> None:
    shell("serve", tmp_path, "--callback-host", "https://a.example", fails=1)
    assert "without https://" in " ".join(shell.errors.split())
