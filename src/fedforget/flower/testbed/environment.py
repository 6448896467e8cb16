"""The environment of every Flower process: no telemetry, no update check, no download, no proxy on loopback."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import MappingProxyType

# What Flower 1.41 reads, each set so that nothing leaves the machine but the messages of the federation.
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

# How often a node asks itself for work; Flower's own second is felt in every round.
POLL_SECONDS = "0.5"

LOOPBACK = ("127.0.0.1", "localhost")


def environment(home: Path) -> dict[str, str]:
    """The environment of a Flower process whose files lie in ``home``.

    Flower's processes start each other by name, so the scripts of this interpreter come first in the path.
    """
    scripts = sysconfig.get_path("scripts")
    no_proxy = _no_proxy(os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "")
    return {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(home),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLL_SECONDS,
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "PATH": os.pathsep.join(filter(None, (scripts, os.environ.get("PATH")))),
        "PYTHONUNBUFFERED": "1",
    }


def _no_proxy(given: str) -> str:
    """The hosts reached without a proxy, and loopback with them. A lone star already means every host."""
    if given.strip() == "*":
        return "*"
    hosts = [host.strip() for host in given.split(",")]
    return ",".join(dict.fromkeys(host for host in (*hosts, *LOOPBACK) if host))
