"""Where the service listens, and the address that it tells callers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from fedforget.erasure_service.serving import _listen
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.tokens import Role
from fedforget.errors import ConfigError, SystemLimitError
from tests.erasure_service.runs import served, service_on


def test_connections_are_of_the_protocol_for_which_answers_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY for TCP sockets only, and tells them by their protocol."""
    with _listen(ServiceSettings(port=0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_an_address_that_is_taken_is_named() -> None:
    with _listen(ServiceSettings(port=0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(SystemLimitError, match=rf"127.0.0.1:{port}"):
            _listen(ServiceSettings(port=port))


def test_links_have_the_address_that_callers_use(tmp_path: Path) -> None:
    service = service_on(tmp_path / "run", public_url="https://erasure.example.org/", behind_proxy=True)
    with served(service, Role.REQUESTER) as (client,):
        answer = client.get("/opendsr/2.0/discovery").json()
    assert answer["processor_certificate"] == "https://erasure.example.org/opendsr/2.0/certificate"
    service.stop()


@pytest.mark.parametrize("url", ["erasure.example.org", "ftp://example.org"])
def test_an_address_with_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="public_url"):
        ServiceSettings(public_url=url)
