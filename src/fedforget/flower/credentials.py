"""Credentials: the certificates by which nodes recognise the server, and the key by which the server recognises a node.

Existing files are kept, so that the identity stays the same after a restart. Only the owner can read a private key,
also while it is being written.
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
    """The files of a server: the certificate authority that nodes trust, the server's certificate and private key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: Sequence[str] = LOOPBACK) -> Certificates:
    """Make a certificate for these names and addresses, signed by an authority whose key is not kept.

    Nobody, not even the server, can sign a second certificate that the nodes would trust. For other hosts, remove
    the files, make new ones and copy the new ``ca.crt`` to every node.
    """
    make_folder(folder)
    files = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    if all(path.exists() for path in (files.authority, files.certificate, files.key)):
        return files
    authority_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
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
    authority = (
        _builder("fedforget authority", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    server = (
        _builder("fedforget server", key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
    )
    write_private(files.key, _pem(key, serialization.PrivateFormat.PKCS8))
    for path, builder in ((files.certificate, server), (files.authority, authority)):
        certificate = builder.sign(authority_key, hashes.SHA384())
        write_file(path, certificate.public_bytes(serialization.Encoding.PEM), private=False)
    return files


def make_node_key(path: Path) -> Path:
    """Make a node's key pair in OpenSSH format and return the file of the public key, which ends in ``.pub``."""
    make_folder(path.parent)
    public = path.with_name(f"{path.name}.pub")
    if path.exists():
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    else:
        key = ec.generate_private_key(ec.SECP384R1())
        write_private(path, _pem(key, serialization.PrivateFormat.OpenSSH))
    if not public.exists():
        encoding, format_ = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        write_file(public, key.public_key().public_bytes(encoding, format_) + b"\n", private=False)
    return public


def make_secret(path: Path) -> Path:
    """Make a random secret that two processes on one machine share."""
    make_folder(path.parent)
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, also while it is being written."""
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


def _builder(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    """The fields of both certificates. They are valid from one hour ago, because a device's clock may be behind."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name("fedforget authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey, format_: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, format_, serialization.NoEncryption())
