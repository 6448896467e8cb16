"""The native API: what operators and auditors see, and that it names nobody."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.attestation.keys import SigningKey
from fedforget.attestation.verify import verify_run
from fedforget.erasure_service import call_log
from fedforget.erasure_service.subject_requests import reference_of
from fedforget.erasure_service.tokens import Role
from fedforget.simulation.federation import Federation
from fedforget.simulation.queued_erasures import QueuedErasures
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on


@pytest.fixture
def service(tmp_path):
    made = service_on(tmp_path / "run")
    yield made
    made.stop()


@pytest.fixture
def clients(service):
    with served(service, Role.REQUESTER, Role.OPERATOR, Role.AUDITOR) as clients:
        yield clients


GUARDED = [
    "federation",
    "rounds",
    "devices",
    "requests",
    f"requests/{'a' * 16}",
    "receipts",
    "receipts/1",
    "verification",
]


@pytest.mark.parametrize("path", [*(f"/v1/{name}" for name in GUARDED), "/metrics"])
def test_only_operators_and_auditors_look(clients, path):
    requester, operator, auditor = clients
    assert requester.get(path).status_code == 403
    assert requester.get(path, headers={"Authorization": ""}).status_code == 401
    assert operator.get(path).status_code == auditor.get(path).status_code


def test_a_finished_request_for_items_is_still_one_for_items(clients):
    requester, operator, _ = clients
    body = erasure_of(extensions={"fedforget": {"items": [1, 2]}})
    id_ = body["subject_request_id"]
    assert requester.post(REQUESTS, json=body).status_code == 201
    assert requester.delete(f"{REQUESTS}/{id_}").status_code == 202
    shown = operator.get(f"/v1/requests/{reference_of(id_)}").json()
    assert (shown["state"], shown["kind"]) == ("cancelled", "items")


def test_errors_are_problem_details(clients):
    answer = clients[0].get("/v1/requests")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["title"] == "Forbidden"
    assert answer.json()["status"] == 403
    assert "operator" in answer.json()["detail"]
    assert clients[1].get("/v1/nothing").json()["status"] == 404


def test_rounds_and_devices_in_numbers(clients):
    operator = clients[1]
    first = operator.get("/v1/rounds", params={"limit": 15}).json()
    rest = operator.get("/v1/rounds", params={"limit": 15, "cursor": first["next"]}).json()
    assert [one["round"] for one in first["items"] + rest["items"]] == list(range(20, 0, -1))
    assert rest["next"] is None
    devices = operator.get("/v1/devices").json()
    assert (devices["asked"], devices["answered"], devices["failures"]) == (200, 180, {"no response": 20})
    assert [one["round"] for one in devices["accuracy"]] == [5, 10, 15, 20]


def test_the_queue_is_listed_in_pages_without_names(clients):
    requester, operator, _ = clients
    asked = [erasure_of("unmistakable-user") for _ in range(5)]
    for body in asked:
        requester.post(REQUESTS, json=body)
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = operator.get("/v1/requests", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
        assert "unmistakable-user" not in page.text
        assert all(body["subject_request_id"] not in page.text for body in asked)
        seen += page.json()["items"]
        cursor, pages = page.json()["next"], pages + 1
    assert len({one["reference"] for one in seen}) == 5
    assert pages == 3
    assert operator.get("/v1/requests", params={"state": "completed"}).json()["items"] == []


def test_one_request_is_answered_as_in_the_list(clients):
    requester, operator, auditor = clients
    body = erasure_of()
    requester.post(REQUESTS, json=body)
    (listed,) = operator.get("/v1/requests").json()["items"]
    for client in (operator, auditor):
        for name in (listed["reference"], body["subject_request_id"]):
            assert client.get(f"/v1/requests/{name}").json() == listed
    missing = operator.get(f"/v1/requests/{'0' * 16}")
    assert (missing.status_code, missing.headers["Content-Type"]) == (404, "application/problem+json")


def test_receipts_and_their_verification(clients, service):
    requester, operator, auditor = clients
    body = erasure_of("17")
    requester.post(REQUESTS, json=body)
    service.dispatcher.tick()
    QueuedErasures(service.run).carry_out()
    service.dispatcher.tick()
    listed = auditor.get("/v1/receipts").json()
    assert [one["number"] for one in listed["items"]] == [1]
    assert listed["head"] == listed["items"][0]["digest"]
    assert auditor.get("/v1/receipts/1").json()["payloadType"] == "application/vnd.in-toto+json"
    assert auditor.get("/v1/receipts/2").status_code == 404
    verified = operator.get("/v1/verification").json()
    assert verified["passed"]
    assert verified["head"] == listed["head"]
    path = next(service.run.glob("receipts/[0-9a-f]*.json"))
    path.write_text(path.read_text().replace('"fru"', '"fro"'))
    assert not operator.get("/v1/verification").json()["passed"]


def test_the_key_may_be_replaced_while_the_service_runs(clients, service):
    requester, operator, _ = clients
    old = requester.get("/opendsr/2.0/certificate").text
    SigningKey.rotate(service.run)
    assert requester.get("/opendsr/2.0/certificate").text != old
    fed = Federation.open(service.run)
    fed.forget([3])
    fed.close()
    service.dispatcher.tick()
    assert operator.get("/v1/verification").json()["passed"]
    assert verify_run(service.run, [requester.get("/opendsr/2.0/certificate").text]).passed


def test_readiness_tells_nobody_but_operators_why(clients, service):
    assert clients[0].get("/v1/ready", headers={"Authorization": ""}).json() == {"ready": True}
    service.worker.status = replace(service.worker.status, error="history.sqlite is damaged")
    answer = clients[0].get("/v1/ready", headers={"Authorization": ""})
    assert answer.status_code == 503
    assert answer.json() == {"ready": False}
    assert clients[2].get("/v1/federation").json()["problems"] == ["history.sqlite is damaged"]
    service.worker.status = None
    assert clients[1].get("/v1/rounds").status_code == 503
    assert clients[1].get("/v1/health").status_code == 200


def test_a_silent_worker_is_a_problem(clients, service):
    service.worker.silent_seconds = 61.0
    assert clients[0].get("/v1/ready").status_code == 503
    assert clients[1].get("/v1/federation").json()["problems"] == [
        "The worker process has not reported for 61 seconds."
    ]
    service.worker.silent_seconds = 59.0
    assert clients[0].get("/v1/ready").status_code == 200


def test_lost_lines_of_the_call_log_are_a_problem(clients, service, monkeypatch):
    def full(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(call_log.os, "write", full)
    assert clients[0].post(REQUESTS, json=erasure_of()).status_code == 503
    assert clients[0].get("/v1/ready").status_code == 503
    (problem,) = clients[1].get("/v1/federation").json()["problems"]
    assert problem.startswith("The log of calls lacks ")
    assert "No space left on device" in problem
    lost = next(
        line for line in clients[1].get("/metrics").text.splitlines() if line.startswith("fedforget_calls_lost")
    )
    assert float(lost.split()[1]) >= 1


def test_methods_of_metrics_are_a_fixed_set_and_outcomes_begin_with_0(clients):
    operator = clients[1]
    for path in ("/v1/health", "/nothing"):
        operator.request("MADE-UP", path)
    text = operator.get("/metrics").text
    assert "MADE-UP" not in text
    assert 'fedforget_http_requests_total{method="other"' in text
    for outcome in ("delivered", "refused", "given_up"):
        assert f'fedforget_callbacks_total{{outcome="{outcome}"}} 0.0' in text


def test_metrics_count_calls_by_route_and_name_nobody(clients):
    requester, operator, _ = clients
    body = erasure_of("unmistakable-user")
    requester.post(REQUESTS, json=body)
    requester.get(f"{REQUESTS}/{body['subject_request_id']}")
    text = operator.get("/metrics").text
    assert 'fedforget_requests{state="pending"} 1.0' in text
    assert 'fedforget_missing_updates{reason="no response"} 20.0' in text
    assert "fedforget_accuracy_full_ndcg 0.4" in text
    assert "unmistakable-user" not in text
    assert body["subject_request_id"] not in text


def test_a_service_holds_its_run_alone(service):
    with pytest.raises(Exception, match="Another process"):
        service_on(service.run)
