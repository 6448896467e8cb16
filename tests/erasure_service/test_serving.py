"""Where the service listens, and the address that it tells callers."""

from __future__ import annotations

import socket
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from starlette.testclient import TestClient

from fedforget.erasure_service import serving
from fedforget.erasure_service.serving import _listen, server_config
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.state_file import open_state
from fedforget.erasure_service.tls import check_tls
from fedforget.erasure_service.tokens import SCHEMA, Role, TokenStore
from fedforget.errors import ConfigError, SystemLimitError
from fedforget.flower.credentials import make_certificates
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


def forwarded(client: str, **settings: Any) -> str:
    """The address of a caller as the application sees it, if a client claims to have forwarded it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["client"][0].encode()})

    config = server_config(app, ServiceSettings(**settings))
    config.load()
    test = TestClient(config.loaded_app, client=(client, 1))
    return test.get("/", headers={"X-Forwarded-For": "203.0.113.7, 198.51.100.1"}).text


@pytest.mark.parametrize(
    ("client", "proxies", "seen"),
    [
        ("127.0.0.1", (), "198.51.100.1"),
        ("::1", (), "198.51.100.1"),
        ("10.0.0.4", (), "10.0.0.4"),
        ("10.0.0.4", ("10.0.0.0/24",), "198.51.100.1"),
        ("10.0.0.4", ("10.0.0.0/24", "198.51.100.1"), "203.0.113.7"),
        ("192.0.2.1", ("10.0.0.0/24",), "192.0.2.1"),
    ],
)
def test_only_proxies_say_who_calls(client: str, proxies: tuple[str, ...], seen: str) -> None:
    assert forwarded(client, behind_proxy=True, proxies=proxies) == seen
    assert forwarded(client) == client


def test_a_proxy_on_another_machine_must_be_named() -> None:
    with pytest.raises(ConfigError, match="could forge its address") as error:
        ServiceSettings(host="10.0.0.5", behind_proxy=True).check_exposure(1)
    assert "--proxies" in error.value.hint
    ServiceSettings(host="10.0.0.5", behind_proxy=True, proxies=("10.0.0.4",)).check_exposure(1)
    ServiceSettings(host="127.0.0.1", behind_proxy=True).check_exposure(0)


@pytest.mark.parametrize("proxy", ["*", "proxy.example.org", "10.0.0.1/24", ""])
def test_a_proxy_is_an_address_or_a_network(proxy: str) -> None:
    with pytest.raises(ConfigError, match="in proxies is invalid"):
        ServiceSettings(behind_proxy=True, proxies=(proxy,))
    with pytest.raises(ConfigError, match="without behind_proxy"):
        ServiceSettings(proxies=("10.0.0.4",))


@pytest.fixture
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket may be bound, and the tests' log is left as it is."""
    monkeypatch.setattr(serving, "_log", lambda kind: None)
    monkeypatch.setattr(serving.socket, "create_server", lambda *_, **__: pytest.fail("a socket was bound"))


def refused(run: Path, **settings: Any) -> ConfigError:
    """Why the service does not start."""
    with pytest.raises(ConfigError) as error:
        serving.serve(run, ServiceSettings(port=0, **settings), lambda url: None)
    return error.value


@pytest.mark.usefixtures("unbound")
def test_without_a_valid_token_no_socket_is_bound_beyond_this_machine(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("format = 4\n")
    with closing(open_state(tmp_path, SCHEMA)) as db:
        tokens, now = TokenStore(db), datetime.now(UTC)
        tokens.revoke(tokens.add("revoked", Role.OPERATOR).split("_")[1])
        tokens.add("expired", Role.OPERATOR, now - timedelta(days=1), now - timedelta(days=2))
    assert "no valid tokens" in refused(tmp_path, host="0.0.0.0", insecure=True).problem


@pytest.mark.usefixtures("unbound")
def test_a_file_that_is_no_certificate_or_key_is_named(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "one", ["localhost"])
    others = make_certificates(tmp_path / "two", ["localhost"])
    locked = tmp_path / "locked.pem"
    key = load_pem_private_key(files.key.read_bytes(), None)
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    text, missing = tmp_path / "text.pem", tmp_path / "missing.pem"
    text.write_text("text")
    good = str(files.certificate), str(files.key)
    for cert, key, wrong in [
        (missing, good[1], missing),
        (text, good[1], text),
        (good[0], missing, missing),
        (good[0], text, text),
        (good[0], others.key, others.key),
        (good[0], locked, locked),
    ]:
        assert str(wrong) in refused(tmp_path, tls_cert=str(cert), tls_key=str(key)).problem
    check_tls(*good)


@pytest.mark.parametrize("url", ["erasure.example.org", "ftp://example.org"])
def test_an_address_with_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="public_url"):
        ServiceSettings(public_url=url)
