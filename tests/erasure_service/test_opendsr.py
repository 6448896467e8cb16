"""The OpenDSR API: the standard's answers, access, and what it does not tell."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificate

from fedforget.erasure_service.subject_requests import State, reference_of
from fedforget.erasure_service.tokens import Role
from fedforget.server.request import ErasureRequest
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on

DISCOVERY = "/opendsr/2.0/discovery"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "run"


@pytest.fixture
def service(run):
    made = service_on(run, callback_hosts=("calls.example",))
    yield made
    made.stop()


@pytest.fixture
def clients(service):
    with served(service, Role.REQUESTER, Role.OPERATOR, Role.AUDITOR) as clients:
        yield clients


def check_signature(client, answer) -> None:
    certificate = client.get("/opendsr/2.0/certificate")
    key = load_pem_x509_certificate(certificate.content).public_key()
    signature = base64.b64decode(answer.headers["X-OpenDSR-Signature"])
    key.verify(signature, answer.content, ec.ECDSA(hashes.SHA256()))


def test_discovery_needs_no_token_and_names_what_is_supported(clients):
    client = clients[0]
    answer = client.get(DISCOVERY, headers={"Authorization": ""}).json()
    assert answer["api_version"] == "2.0"
    assert answer["supported_subject_request_types"] == ["erasure"]
    assert answer["supported_identities"] == [{"identity_type": "controller_customer_id", "identity_format": "raw"}]
    assert answer["processor_certificate"].endswith("/opendsr/2.0/certificate")


def test_a_request_is_accepted_signed_and_answered_alike_when_it_comes_again(clients, service):
    client, body = clients[0], erasure_of()
    first, again = client.post(REQUESTS, json=body), client.post(REQUESTS, json=body)
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert first.json()["subject_request_id"] == body["subject_request_id"]
    assert json.loads(base64.b64decode(first.json()["encoded_request"])) == body
    assert first.headers["X-OpenDSR-Processor-Domain"] == "fedforget.example"
    check_signature(client, first)
    status = client.get(f"{REQUESTS}/{body['subject_request_id']}")
    check_signature(client, status)
    assert status.json()["request_status"] == "pending"
    assert service.requests.counts()[State.PENDING] >= 1


def test_an_unknown_person_is_answered_like_a_member(clients):
    member, stranger = (clients[0].post(REQUESTS, json=erasure_of(user)) for user in ("1", "nobody-with-this-id"))
    assert member.status_code == stranger.status_code == 201
    hidden = ("subject_request_id", "encoded_request", "received_time", "expected_completion_time")
    shown = [{k: v for k, v in answer.json().items() if k not in hidden} for answer in (member, stranger)]
    assert shown[0] == shown[1]
    assert set(member.headers) == set(stranger.headers)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject_request_id": "17"}, "subject_request_id"),
        ({"subject_request_id": str(uuid.uuid1())}, "version 4"),
        ({"subject_request_type": "portability"}, "subject_request_type"),
        ({"submitted_time": "yesterday"}, "submitted_time"),
        ({"submitted_time": "2026-01-01T00:00:00"}, "submitted_time"),
        ({"submitted_time": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}, "in the future"),
        ({"subject_identities": []}, "subject_identities"),
        ({"subject_identities": [{"identity_type": "email", "identity_value": "a@b"}]}, "controller_customer_id"),
        ({"submitted_time": 1_790_000_000}, "RFC 3339"),
        ({"submitted_time": "1790000000"}, "RFC 3339"),
        ({"submitted_time": "2026-01-01"}, "RFC 3339"),
        ({"submitted_time": "2026-01-01 00:00:00Z"}, "RFC 3339"),
        ({"submitted_time": "2026-01-01T00:00:00+0100"}, "RFC 3339"),
        ({"submitted_time": "2026-02-30T00:00:00Z"}, "submitted_time"),
        ({"submitted_time": "2015-12-31T23:59:59Z"}, "before 2016"),
        ({"submitted_time": "0001-01-01T00:00:00+14:00"}, "before 2016"),
        ({"submitted_time": "9999-12-31T23:59:59-14:00"}, "in the future"),
        ({"regulation": ""}, "regulation"),
        ({"regulation": "GDPR"}, "regulation"),
        ({"regulation": "hipaa"}, "regulation"),
        ({"api_version": "1.0"}, "api_version"),
        ({"status_callback_urls": ["https://elsewhere.example/x"]}, "elsewhere.example"),
        ({"status_callback_urls": ["http://calls.example/x"]}, "https"),
        ({"status_callback_urls": ["https://127.0.0.1/x"]}, "127.0.0.1"),
        *(
            ({"extensions": {"fedforget": {"items": items}}}, "items")
            for items in (
                [],
                [True],
                [1.0],
                [1.5],
                [None],
                [""],
                [[1]],
                ["a\u0000"],
                [2**63],
                17,
                "17",
                ["1"],
                [1, "2"],
            )
        ),
    ],
)
def test_what_is_not_valid_is_refused_with_the_reason(clients, change, reason):
    answer = clients[0].post(REQUESTS, json=erasure_of(**change))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == 400
    assert reason in json.dumps(error)
    assert error["errors"]


IDENTITY = {"identity_type": "controller_customer_id", "identity_value": "1"}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"extensions": {"fedForget": {"items": [50]}}}, "fedForget"),
        ({"extensions": {"fed_forget": [50]}}, "fed_forget"),
        ({"extensions": {"items": [50]}}, "items"),
        ({"extensions": {"fedforget.items": [50]}}, "fedforget.items"),
        ({"extensions": {"shop.example": {"items": [50]}}}, "shop.example"),
        ({"extensions": {"fedforget": {"items": [50], "until": 3}}}, "until"),
        ({"extensions": {"fedforget": {"item": [50]}}}, "item"),
        ({"extension": {"fedforget": {"items": [50]}}}, "extension"),
        ({"Extensions": {"fedforget": {"items": [50]}}}, "Extensions"),
        ({"extentions": {"fedforget": {"items": [50]}}}, "extentions"),
        ({"items": [50]}, "items"),
        ({"subject_identities": [{**IDENTITY, "items": [50]}]}, "items"),
    ],
)
def test_misspelt_items_never_forget_the_whole_person(clients, change, key):
    answer = clients[0].post(REQUESTS, json=erasure_of(**change))
    assert answer.status_code == 400
    assert key in answer.json()["error"]["message"]


@pytest.mark.parametrize("change", [{"group": "x"}, {"extensions": {"shop.example": {"id": 3}, "other": [1]}}])
def test_other_unknown_keys_are_ignored_as_the_standard_asks(clients, change):
    assert clients[0].post(REQUESTS, json=erasure_of(**change)).status_code == 201


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"regulation": NaN}'])
def test_what_is_no_json_object_is_refused(clients, body):
    answer = clients[0].post(REQUESTS, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400


def test_the_same_request_in_other_words_is_the_same(clients):
    client = clients[0]
    body = erasure_of(submitted_time="2026-11-01T15:00:00Z", extensions={"fedforget": {"items": [1, 2]}})
    first = client.post(REQUESTS, json=body)
    other = {**body, "submitted_time": "2026-11-01T16:00:00.000+01:00", "api_version": "2.0", "unknown": 1}
    content = json.dumps(dict(reversed(other.items())), indent=4).encode()
    again = client.post(REQUESTS, content=content, headers={"Content-Type": "application/json"})
    assert again.status_code == 201
    assert {**again.json(), "encoded_request": None} == {**first.json(), "encoded_request": None}
    assert base64.b64decode(again.json()["encoded_request"]) == content
    for items in ([1], [2, 1], ["1", 2], [1, 1]):
        changed = {**body, "extensions": {"fedforget": {"items": items}}}
        assert client.post(REQUESTS, json=changed).status_code == 409


def test_a_repeated_request_is_answered_whatever_the_settings_are_now(clients, service):
    body = erasure_of(status_callback_urls=["https://calls.example/done"], extensions={"fedforget": {"items": [1]}})
    first = clients[0].post(REQUESTS, json=body)
    service.settings = replace(service.settings, callback_hosts=())
    service.engine = "flower"
    assert clients[0].post(REQUESTS, json=body).json() == first.json()
    new = erasure_of(status_callback_urls=["https://calls.example/done"])
    assert clients[0].post(REQUESTS, json=new).status_code == 400


def test_another_body_with_a_known_id_is_refused(clients):
    body = erasure_of()
    assert clients[0].post(REQUESTS, json=body).status_code == 201
    answer = clients[0].post(REQUESTS, json={**body, "regulation": "ccpa"})
    assert answer.status_code == 409
    assert "Another request" in answer.json()["error"]["message"]
    assert clients[1].post(REQUESTS, json=body).status_code == 409, "it belongs to another token"


def test_tokens_and_roles(clients, service):
    requester, operator, auditor = clients
    body = erasure_of()
    path = f"{REQUESTS}/{body['subject_request_id']}"
    assert auditor.post(REQUESTS, json=body).status_code == 403
    for header in ({"Authorization": ""}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}):
        refused = requester.post(REQUESTS, json=body, headers=header)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert service.requests.find(reference_of(body["subject_request_id"])) is None
    assert requester.post(REQUESTS, json=body).status_code == 201
    assert operator.get(path).status_code == 200
    token = service.tokens.add("another", Role.REQUESTER)
    other = requester.get(path, headers={"Authorization": f"Bearer {token}"})
    assert other.status_code == 404, "the request of another token is not there"
    service.tokens.revoke(token.split("_")[1])
    assert requester.get(path, headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_token_that_has_expired_is_refused(clients, service):
    soon = datetime.now(UTC) + timedelta(milliseconds=50)
    token = service.tokens.add("short", Role.REQUESTER, soon)
    header = {"Authorization": f"Bearer {token}"}
    path = f"{REQUESTS}/{uuid.uuid4()}"
    assert clients[0].get(path, headers=header).status_code == 404
    while datetime.now(UTC) <= soon:
        pass
    assert clients[0].get(path, headers=header).status_code == 401


def test_after_a_token_is_replaced_its_requests_can_be_read(clients, service):
    old = service.tokens.add("tickets", Role.REQUESTER)
    body = erasure_of()
    path, headers = f"{REQUESTS}/{body['subject_request_id']}", {"Authorization": f"Bearer {old}"}
    first = clients[0].post(REQUESTS, json=body, headers=headers)
    assert first.status_code == 201
    service.tokens.revoke(old.split("_")[1])
    assert clients[0].get(path, headers=headers).status_code == 401
    new = service.tokens.add("tickets", Role.REQUESTER, replaces=old.split("_")[1])
    headers = {"Authorization": f"Bearer {new}"}
    answer = clients[0].get(path, headers=headers)
    assert answer.status_code == 200
    assert answer.json()["controller_id"] == first.json()["controller_id"]
    assert clients[0].post(REQUESTS, json=body, headers=headers).json() == first.json()


def test_a_pending_request_is_cancelled_once(clients, service):
    client, body = clients[0], erasure_of()
    client.post(REQUESTS, json=body)
    path = f"{REQUESTS}/{body['subject_request_id']}"
    answer = client.delete(path)
    assert answer.status_code == 202
    check_signature(client, answer)
    assert client.get(path).json()["request_status"] == "cancelled"
    assert client.delete(path).status_code == 202
    assert client.delete(path).json() == answer.json(), "the same call gets the same answer"
    assert service.requests.find(reference_of(body["subject_request_id"])).users == ()
    again = client.post(REQUESTS, json=body)
    assert again.status_code == 409
    assert "was cancelled" in again.json()["error"]["message"]
    assert client.get(path).json()["request_status"] == "cancelled"


def test_a_request_that_is_carried_out_cannot_be_cancelled(clients, service):
    client, body = clients[0], erasure_of()
    client.post(REQUESTS, json=body)
    reference = reference_of(body["subject_request_id"])
    service.batches.start(ErasureRequest.new([17], {}), [reference], 0.0, 0.0)
    answer = client.delete(f"{REQUESTS}/{body['subject_request_id']}")
    assert answer.status_code == 400
    assert "in_progress" in answer.json()["error"]["message"]
    assert client.get(f"{REQUESTS}/{body['subject_request_id']}/confirmation").status_code == 409


@pytest.mark.parametrize(
    "path", [f"{REQUESTS}/5f0c2a4e-9d3b-4f5e-8a51-1c9a6d2f7b10", "/opendsr/2.0/nothing", "/opendsr/3.0/discovery"]
)
def test_what_is_not_there_is_answered_in_the_form_of_the_standard(clients, path):
    answer = clients[0].get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == 404


def test_too_many_calls_are_refused_for_a_while(run):
    service = service_on(run, rate=1.0)
    try:
        with served(service, Role.REQUESTER) as [client]:
            codes = [client.get(f"{REQUESTS}/{uuid.uuid4()}").status_code for _ in range(4)]
            assert codes == [404, 404, 429, 429]
            assert int(client.get(f"{REQUESTS}/{uuid.uuid4()}").headers["Retry-After"]) >= 1
    finally:
        service.stop()


def test_an_address_that_fails_too_often_must_wait_unless_its_token_is_valid(clients):
    header = {"Authorization": "Bearer ff_00000000_" + "0" * 43}
    answers = [clients[0].get(f"{REQUESTS}/{uuid.uuid4()}", headers=header) for _ in range(12)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
    assert answers[0].json()["error"]["message"].endswith("Ask the person who runs this service for a token.")
    assert clients[0].get(f"{REQUESTS}/{uuid.uuid4()}").status_code == 404


def test_a_large_body_is_refused(clients):
    answer = clients[0].post(REQUESTS, json=erasure_of("x" * 200_000))
    assert answer.status_code == 413


def test_every_answer_has_the_security_headers(clients):
    for path in (DISCOVERY, "/opendsr/2.0/nothing", "/v1/health"):
        headers = clients[0].get(path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Request-ID"]
