"""A service on a small run, without its worker process: what the worker would do is done by the test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from fedforget.erasure_service.app import create_app
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.status import Accuracy, RoundSummary, RunStatus
from fedforget.erasure_service.tokens import Role
from tests.small_federations import trained

REQUESTS = "/opendsr/2.0/opendsr_requests"


class SilentWorker:
    """A worker process that reports a status and never does anything."""

    alive = True
    silent_seconds = 0.0

    def __init__(self, federation: str) -> None:
        rounds = tuple(RoundSummary(r, 10, 9, {"no response": 1}, 0.5, 0.4) for r in range(1, 21))
        accuracy = tuple(Accuracy(r, 10, 40, {"ndcg": r / 40}, {"ndcg": r / 50}) for r in (5, 10, 15, 20))
        self.woken = 0
        self.status = RunStatus(
            engine="simulation",
            federation=federation,
            model="mf",
            method={"name": "fru"},
            rounds=20,
            members=40,
            items=60,
            trajectory=1,
            estimate_seconds=0.0,
            recent=rounds,
            accuracy=accuracy,
            updated="2026-11-01T00:00:00Z",
        )

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wake(self) -> None:
        self.woken += 1


def service_on(run: Path, **settings: Any) -> ErasureService:
    """A service on a run, which is trained if there is none. It is not started."""
    if not (run / "config.toml").exists():
        trained(run).close()
    service = ErasureService(run, ServiceSettings(**{"domain": "fedforget.example", **settings}))
    service.worker = SilentWorker("f" * 16)  # type: ignore[assignment]
    return service


@contextmanager
def served(service: ErasureService, *roles: Role) -> Iterator[list[TestClient]]:
    """Clients of a service that is not started, one with a token for each role. A plain client does not start it."""
    clients = []
    for role in roles:
        client = TestClient(create_app(service), raise_server_exceptions=False)
        client.headers["Authorization"] = f"Bearer {service.tokens.add(role, role)}"
        clients.append(client)
    yield clients


def erasure_of(user: str = "17", **changes: Any) -> dict[str, Any]:
    """The body of a request."""
    identity = {"identity_type": "controller_customer_id", "identity_value": user, "identity_format": "raw"}
    return {
        "regulation": "gdpr",
        "subject_request_id": str(uuid.uuid4()),
        "subject_request_type": "erasure",
        "submitted_time": datetime.now(UTC).isoformat(),
        "subject_identities": [identity],
        **changes,
    }
