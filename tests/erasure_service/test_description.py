"""The API keeps to its own description, whatever is sent to it."""

from __future__ import annotations

import pytest

pytest.importorskip("schemathesis")
pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

import schemathesis
from hypothesis import HealthCheck, settings

from fedforget.erasure_service.app import create_app
from fedforget.erasure_service.tokens import Role
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = service_on(tmp_path_factory.mktemp("run") / "run", rate=1e6, callback_hosts=("calls.example",))
    yield made
    type(made).stop(made)


@pytest.fixture(scope="module")
def token(service):
    with served(service, Role.REQUESTER) as [client]:
        client.post(REQUESTS, json=erasure_of())
    return service.tokens.add("everything", Role.OPERATOR)


@pytest.fixture(scope="module")
def described(service, token):
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(service))


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case, service, token):
    service.access.failures._times.clear()  # made-up tokens are refused, and their address is not made to wait
    case.call_and_validate(headers={"Authorization": f"Bearer {token}"})


def test_the_description_names_the_routes_and_their_errors(described):
    paths = described.raw_schema["paths"]
    assert {"/opendsr/2.0/discovery", REQUESTS, "/v1/requests", "/v1/receipts", "/v1/health", "/metrics"} <= set(paths)
    assert "422" not in str(paths)
    for path, operations in paths.items():
        for operation in operations.values():
            assert operation.get("summary"), path
            if operation.get("security"):
                assert {"400", "401", "403", "429"} <= set(operation["responses"]), path
