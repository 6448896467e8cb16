"""Credentials: the certificates that prove the server to the nodes, and the key that proves a node to the server.

What is there is kept, so that a restart has the same identity. Private keys are never readable by others, not even
while they are written.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedforget.runtime.files import cannot_write, make_folder, write_file

LOOPBACK = ("127.0.0.1", "localhost")
LIFETIME = timedelta(days=3650)


@dataclass(frozen=True)
class Certificates:
    """The files of a server: whom the nodes trust, what the server shows, and the key it alone has."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: Sequence[str] = LOOPBACK) -> Certificates:
    """A certificate for these names and addresses, signed by an authority whose key is thrown away.

    Nobody, not even the server, can sign a second certificate that the nodes would trust. For other hosts, remove
    the files and hand the new ``ca.crt`` to every node.
    """
    make_folder(folder)
    files = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    if all(path.exists() for path in (files.authority, files.certificate, files.key)):
        return files
    authority_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority = _authority(authority_key)
    certificate = _certificate(key, authority, authority_key, hosts)
    write_private(files.key, _pem(key, serialization.PrivateFormat.PKCS8))
    write_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    write_file(files.authority, authority.public_bytes(serialization.Encoding.PEM))
    return files


def make_node_key(path: Path) -> Path:
    """A node's key pair in OpenSSH format, the public half beside it as ``.pub``. Returns the public file."""
    make_folder(path.parent)
    public = path.with_name(f"{path.name}.pub")
    if path.exists():
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    else:
        key = ec.generate_private_key(ec.SECP384R1())
        write_private(path, _pem(key, serialization.PrivateFormat.OpenSSH))
    if not public.exists():
        encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        write_file(public, key.public_key().public_bytes(encoding, form) + b"\n")
    return public


def make_secret(path: Path) -> Path:
    """A random secret that two processes of one machine share."""
    make_folder(path.parent)
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("fedforget authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
) -> x509.Certificate:
    names = [_host(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(_name("fedforget server"), authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA384())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    """What both certificates have. They are valid from an hour ago, for a device whose clock is behind."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
