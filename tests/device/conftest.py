"""What the tests of devices share."""

from __future__ import annotations

import pytest

from fedforget.device.host import Host
from tests.device.made_hosts import household


@pytest.fixture
def host(tmp_path) -> Host:
    return household(tmp_path / "device")
