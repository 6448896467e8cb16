"""The API keeps to its own description, whatever is sent to it."""

from __future__ import annotations

import contextlib

import pytest

pytest.importorskip("schemathesis")
pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from fedforget.erasure_service.app import create_app
from fedforget.erasure_service.tokens import Role
from tests.erasure_service.runs import REQUESTS, erasure_of, served, service_on

load_all_checks()
#: Not checked: that what fits the schema is accepted by the one operation whose rules no schema can express, and that
#: parameters are refused that are not described.
ACCEPTS, REFUSES = CHECKS.get_by_names(["positive_data_acceptance", "negative_data_rejection"])
#: Examples for each operation and mode.
EXAMPLES = 12


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = service_on(tmp_path_factory.mktemp("run") / "run", rate=1e6, callback_hosts=("calls.example",))
    stop, made.start, made.stop = made.stop, lambda: None, lambda: None  # each call begins and ends an application
    yield made
    stop()


@pytest.fixture(scope="module")
def token(service):
    with served(service, Role.REQUESTER) as [client]:
        client.post(REQUESTS, json=erasure_of())
    return service.tokens.add("everything", Role.OPERATOR)


@pytest.fixture(scope="module")
def described(service, token):
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(service))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_answer_is_as_described(described, service, token, mode):
    """Whatever is sent, valid or not: answers have a documented status and form, and none is an error of the server."""
    for found in described.get_all_operations():
        operation = found.ok()

        @given(operation.as_strategy(generation_mode=mode))
        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        def answers_as_described(case):
            service.access.failures._times.clear()  # made-up tokens are refused, but their address need not wait
            excluded = [REFUSES, ACCEPTS] if case.path == REQUESTS else [REFUSES]
            case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=excluded)

        with contextlib.suppress(Unsatisfiable):  # an operation without input has nothing that is not valid
            answers_as_described()


def test_the_description_names_the_routes_and_their_errors(described):
    paths = described.raw_schema["paths"]
    assert {"/opendsr/2.0/discovery", REQUESTS, "/v1/requests", "/v1/receipts", "/v1/health", "/metrics"} <= set(paths)
    assert "422" not in str(paths)
    for path, operations in paths.items():
        for operation in operations.values():
            assert operation.get("summary"), path
            if operation.get("security"):
                assert {"400", "401", "403", "429"} <= set(operation["responses"]), path
