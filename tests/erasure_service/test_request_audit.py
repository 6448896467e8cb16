"""The audit of an erasure that the service carried out, by the ids of the persons' requests."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.cli.main import app
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.tokens import Role
from fedforget.simulation.federation import Federation
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on


def ask(service: ErasureService, user: str, *items: object) -> str:
    """Ask over HTTP; returns the id of the request."""
    changes = {"extensions": {"fedforget": {"items": list(items)}}} if items else {}
    body = erasure_of(user, **changes)
    with served(service, Role.REQUESTER) as [client]:
        assert client.post(REQUESTS, json=body).status_code == 201
    return str(body["subject_request_id"])


def audit(run: Path, *options: str) -> dict[str, Any]:
    (request,) = [path.stem for path in run.glob("receipts/*.json") if not path.name.endswith(".audit.json")]
    done = CliRunner().invoke(app, ["audit", "request", str(run), request, *options, "--json"])
    assert done.stdout, done.output
    values: dict[str, Any] = json.loads(done.stdout)
    return {**values, "checks": {check["name"]: check["passed"] for check in values["checks"]}}


def test_persons_are_named_by_their_own_requests(tmp_path: Path) -> None:
    run = tmp_path / "run"
    service = service_on(run)
    with closing(Federation.open(run)) as fed:
        stays, everything = fed.members[7], fed.members[8]
        item, items = fed.train.item_ids_of(stays)[0], fed.train.item_ids.tolist()
    ids = [
        ask(service, "17"),
        ask(service, "stranger"),
        ask(service, str(everything), *items),
        ask(service, str(stays), item),
    ]
    service.dispatcher.tick()
    QueuedErasures(run).carry_out()
    named = ["--users", f"17,stranger,{everything}", "--user", str(stays), "--items", str(item)]
    named += [option for id_ in ids for option in ("--request-id", id_)]
    service.dispatcher.tick()
    assert audit(run, *named)["checks"]["files"] is False  # the service has the ids until the requests are completed
    now = service.dispatcher.clock()
    service.dispatcher.clock = lambda: now + 3600.0
    service.dispatcher.tick()
    result = audit(run, *named)
    assert (result["result"], result["checked"], result["persons"]) == ("passed", 4, 4), result
    one = audit(run, "--users", "17", "--request-id", ids[0])
    assert (one["result"], one["checked"], one["checks"]["history"]) == ("incomplete", 1, True)
    service.stop()
