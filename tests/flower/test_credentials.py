"""Certificates a TLS client accepts, keys that nobody else can read, and the same ones after a restart."""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedforget.errors import RunError
from fedforget.flower import credentials
from fedforget.flower.credentials import make_certificates, make_node_key, make_secret, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_certificate_is_for_the_hosts_named_and_for_loopback(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["forget.example.org", "10.0.0.7"])
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"forget.example.org", "localhost"}
    assert set(names.get_values_for_type(x509.IPAddress)) == {
        ipaddress.ip_address("10.0.0.7"),
        ipaddress.ip_address("127.0.0.1"),
    }


def test_a_tls_client_that_trusts_the_authority_accepts_the_server(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    client_context = ssl.create_default_context(cafile=str(files.authority))
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(files.certificate, files.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.getpeercert()["subject"] == ((("commonName", "fedforget server"),),)


def test_a_node_key_is_an_openssh_ecdsa_pair(tmp_path: Path) -> None:
    public = make_node_key(tmp_path / "nodes" / "u0")
    private_bytes = (tmp_path / "nodes" / "u0").read_bytes()
    assert private_bytes.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    key = serialization.load_ssh_private_key(private_bytes, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    other_half = serialization.load_ssh_public_key(public.read_bytes())
    assert isinstance(other_half, ec.EllipticCurvePublicKey)
    assert other_half.public_numbers() == key.public_key().public_numbers()
    assert public.read_bytes().startswith(b"ecdsa-sha2-nistp384 ")


def test_flower_can_read_the_public_key(tmp_path: Path) -> None:
    from flwr.cli.supernode.register import try_load_public_key

    assert try_load_public_key(make_node_key(tmp_path / "u0"))


def test_only_the_owner_can_read_a_private_key(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "server")
    make_node_key(tmp_path / "u0")
    assert mode(files.key) == 0o600
    assert mode(tmp_path / "u0") == 0o600
    assert mode(make_secret(tmp_path / "secret")) == 0o600


def test_a_private_file_is_private_before_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    opened = os.fdopen

    def look(handle: int, how: str) -> object:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return opened(handle, how)

    monkeypatch.setattr(credentials.os, "fdopen", look)
    write_private(tmp_path / "key", b"secret")
    assert seen == [0o600]
    assert contents(tmp_path) == {"key": b"secret"}


def test_a_restart_has_the_same_identity(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    make_node_key(tmp_path / "u0")
    make_secret(tmp_path / "secret")
    before = contents(tmp_path)
    make_certificates(tmp_path)
    make_node_key(tmp_path / "u0")
    make_secret(tmp_path / "secret")
    assert contents(tmp_path) == before


def test_a_lost_public_half_is_made_again_from_the_private_one(tmp_path: Path) -> None:
    public = make_node_key(tmp_path / "u0")
    before = public.read_bytes()
    public.unlink()
    assert make_node_key(tmp_path / "u0").read_bytes() == before


def test_two_networks_do_not_trust_each_other(tmp_path: Path) -> None:
    one, two = make_certificates(tmp_path / "one"), make_certificates(tmp_path / "two")
    certificate = x509.load_pem_x509_certificate(one.certificate.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(one.authority.read_bytes()))
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(two.authority.read_bytes()))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(RunError, match="taken"):
        make_node_key(tmp_path / "taken" / "u0")
    with pytest.raises(RunError, match="missing"):
        write_private(tmp_path / "missing" / "key", b"")
