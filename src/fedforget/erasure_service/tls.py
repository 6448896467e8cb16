"""The certificate and the key with which the service answers."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates

from fedforget.errors import ConfigError


def check_tls(certificate: str, key: str) -> None:
    """An error that names the file if a certificate and its key cannot be used together."""
    try:
        load_pem_x509_certificates(_read(certificate))
    except ValueError as error:
        raise ConfigError(f"{certificate} is not a certificate in PEM.", "Give another one: --tls-cert.") from error
    try:
        load_pem_private_key(_read(key), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = "has a password" if isinstance(error, TypeError) else "is not a private key in PEM"
        raise ConfigError(f"{key} {reason}.", "Give a private key without a password: --tls-key.") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        problem = f"{certificate} and {key} cannot be used together: {error.reason or error}."
        raise ConfigError(problem, "Give a certificate and its own key: --tls-cert, --tls-key.") from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
        raise ConfigError(problem, "Check --tls-cert and --tls-key, and who may read the files.") from error
