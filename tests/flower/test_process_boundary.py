"""What each process of a Flower network loads: the server no device code, a device no server code."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

FOREIGN = {
    "fedforget.flower.server_app": ("device", "data", "evaluation", "simulation"),
    "fedforget.flower.client_app": ("server", "simulation"),
}


def loaded_by(module: str) -> list[str]:
    """The modules of fedforget that a fresh interpreter has loaded after importing one of them."""
    code = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith('fedforget')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


@pytest.mark.parametrize(("module", "packages"), FOREIGN.items(), ids=FOREIGN)
def test_an_app_loads_nothing_of_the_other_side(module, packages):
    loaded = loaded_by(module)
    assert module in loaded
    foreign = tuple(f"fedforget.{package}" for package in packages)
    assert [name for name in loaded if name.startswith(foreign)] == []


def test_the_apps_load_what_their_side_needs():
    assert "fedforget.server.service" in loaded_by("fedforget.flower.server_app")
    assert "fedforget.device.host" in loaded_by("fedforget.flower.client_app")
