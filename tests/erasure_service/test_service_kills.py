"""SIGKILL of the service at any point between acceptance and receipt: each request is there exactly once."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections import Counter
from pathlib import Path

import httpx2 as httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

import fedforget as ff
from fedforget.attestation.verify import verify_run
from fedforget.erasure_service.subject_requests import pseudonyms_of
from tests.erasure_service.processes import PATIENCE, running, token_for, wait_for
from tests.erasure_service.runs import erasure_of
from tests.small_federations import trained

pytestmark = pytest.mark.slow

PACKAGE = "fedforget.erasure_service"
#: Functions around which the service is killed: module, class, function, number of the call.
PLACES = [
    (f"{PACKAGE}.subject_requests", "SubjectRequests", "add", 1),
    (f"{PACKAGE}.subject_requests", "SubjectRequests", "add", 2),
    (f"{PACKAGE}.batches", "Batches", "start", 1),
    ("fedforget.server.erasure_queue", "ErasureQueue", "add", 1),
    (f"{PACKAGE}.batches", "Batches", "begin", 1),
    ("fedforget.attestation.chain", "", "write_file", 1),
    ("fedforget.attestation.chain", "ReceiptChain", "append", 1),
    (f"{PACKAGE}.subject_requests", "SubjectRequests", "finish", 1),
    (f"{PACKAGE}.subject_requests", "SubjectRequests", "finish", 2),
    (f"{PACKAGE}.batches", "Batches", "close", 1),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("prepared") / "run"
    trained(run).close()
    return run


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[2]}-{place[3]}")
def test_every_request_is_carried_out_exactly_once(prepared, tmp_path, place, when):
    run = tmp_path / "run"
    shutil.copytree(prepared, run)
    users = ["3", "17"]
    bodies = [erasure_of(user) for user in users]
    token = token_for(run)
    module, owner, name, n = place
    program = ("-m", "tests.erasure_service.killed_service", f"{module}:{owner}:{name}:{when}:{n}")
    with running(run, token=token, program=program) as service:
        answered = [_ask(service, body) for body in bodies]
        wait_for(lambda: service.process.poll() is not None, PATIENCE, "the service dies at the place")
        assert service.process.returncode == -9
    with running(run, token=token) as service:
        for body, answer in zip(bodies, answered, strict=True):
            if answer:
                assert service.status(body["subject_request_id"]) in ("pending", "in_progress", "completed")
            assert service.ask(body).status_code == 201
        for body in bodies:
            service.wait(body["subject_request_id"])
    assert_carried_out_once(run, bodies, users)


def _ask(service, body) -> bool:
    """Whether a request was accepted before the service died."""
    try:
        return service.ask(body).status_code == 201
    except httpx.TransportError:
        return False


def assert_carried_out_once(run: Path, bodies: list[dict], users: list[str]) -> None:
    """Nobody is a member any more, each is named in exactly one receipt, and everything is signed."""
    fed = ff.Federation.open(run)
    assert not {int(user) for user in users} & set(fed.members)
    assert len(fed.members) == 40 - len(users)
    assert sum(len(receipt.users) for receipt in fed.receipts()) == len(users)
    named = Counter(
        person["pseudonym"]
        for path in run.glob("receipts/signed/*.json")
        for person in json.loads(b64decode(json.loads(path.read_bytes())["payload"]))["predicate"]["persons"]
    )
    expected = [
        name
        for body, user in zip(bodies, users, strict=True)
        for name in pseudonyms_of(body["subject_request_id"], [user])
    ]
    assert named == Counter(expected)
    assert verify_run(run).passed
    assert not list(run.glob("queue/*.json"))
