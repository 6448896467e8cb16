"""Certificate: the public half of a signing key, as X.509."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from fedforget.errors import SigningKeyError

LIFETIME = timedelta(days=3650)
#: A certificate is valid from a little before it was made, because the clock of who checks it may be behind.
BACKDATED = timedelta(hours=1)
BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
#: The longest common name that X.509 allows.
LONGEST_NAME = 64


@dataclass(frozen=True)
class Certificate:
    """A certificate with a public key on the curve P-256.

    ``pem`` has the certificates of its file, in which those of authorities may follow, and nothing else of it: it is
    handed out, and the file may hold the private key too. ``key_id`` is the SHA-256 of the public key
    (SubjectPublicKeyInfo in DER).
    """

    pem: str
    key_id: str
    subject: str
    valid_from: datetime
    valid_until: datetime
    public_key: ec.EllipticCurvePublicKey

    @classmethod
    def parse(cls, pem: str, name: str) -> Certificate:
        """Read the first certificate of a file in PEM; ``name`` is how errors call the file."""
        blocks = "\n".join([*BLOCK.findall(pem), ""])
        try:
            first = x509.load_pem_x509_certificate(blocks.encode())
            key = first.public_key()
        except Exception as error:  # cryptography raises many types for damaged certificates
            raise SigningKeyError(
                f"{name} is not a certificate: {error}.", "Give an X.509 certificate in PEM: BEGIN CERTIFICATE."
            ) from error
        if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)):
            raise SigningKeyError(
                f"The key in {name} is {_kind(key)}.", "Receipts are signed with ECDSA on the curve P-256 (prime256v1)."
            )
        subject = first.subject.rfc4514_string()
        return cls(blocks, key_id(key), subject, first.not_valid_before_utc, first.not_valid_after_utc, key)

    def covers(self, time: datetime) -> bool:
        """Whether a time is within the validity."""
        return self.valid_from <= time <= self.valid_until


def key_id(key: ec.EllipticCurvePublicKey) -> str:
    """The SHA-256 of a public key."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def self_signed(key: ec.EllipticCurvePrivateKey, federation: str, now: datetime) -> str:
    """A certificate for a key, signed by that key, in PEM."""
    common_name = f"fedforget receipts of federation {federation}"[:LONGEST_NAME]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _kind(key: object) -> str:
    """What a key is, for errors."""
    curve = getattr(getattr(key, "curve", None), "name", None)
    return f"on the curve {curve}" if curve else f"of the type {type(key).__name__}"
