"""The certificate and the key with which the service answers."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificates

from fedforget.errors import ConfigError


def check_tls(certificate: str, key: str) -> None:
    """An error that names the file if a certificate and its key cannot be used together."""
    content, _ = _read(certificate), _read(key)
    try:
        load_pem_x509_certificates(content)
    except ValueError as error:
        raise ConfigError(f"{certificate} is not a certificate in PEM.", "Give another one: --tls-cert.") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        problem = f"{key} cannot be used as the key of {certificate}: {error.reason or error}."
        hint = "Give the private key of the certificate, in PEM and without a password: --tls-key."
        raise ConfigError(problem, hint) from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise ConfigError(problem, "Check --tls-cert and --tls-key, and who may read the files.") from error
