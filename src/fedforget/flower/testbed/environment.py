"""The environment of every Flower process: no telemetry, no update check, no download, no proxy for loopback."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import MappingProxyType

from fedforget.flower.credentials import LOOPBACK

#: Switches of Flower 1.41, set so that nothing leaves the machine except the messages of the federation.
QUIET = MappingProxyType(
    {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_TELEMETRY_LOGGING": "0",
        "FLWR_TRACING_ENABLED": "0",
        "FLWR_ENABLE_EVENT_LOG": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        # The old APIs would listen on every interface.
        "FLWR_INTERNAL_GRPC_CONTROL_API": "0",
        "FLWR_INTERNAL_GRPC_FLEET_API": "0",
    }
)

#: How often an executor looks for work. Flower's default of one second would slow down every round.
POLL_SECONDS = "0.5"


def environment(home: Path) -> dict[str, str]:
    """The environment of a Flower process that keeps its files in ``home``.

    Flower's processes start each other by name, so this interpreter's scripts come first in the path.
    """
    no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if no_proxy.strip() != "*":  # which already means every host
        hosts = [host.strip() for host in no_proxy.split(",")]
        no_proxy = ",".join(dict.fromkeys(host for host in (*hosts, *LOOPBACK) if host))
    return {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(home),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLL_SECONDS,
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "PATH": os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), os.environ.get("PATH")))),
        "PYTHONUNBUFFERED": "1",
    }
