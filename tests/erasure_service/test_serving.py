"""The socket that the service listens on."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("fastapi")

from fedforget.erasure_service.serving import _listen
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.errors import SystemLimitError


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
