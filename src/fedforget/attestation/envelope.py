"""Envelope: a payload with its signature, as DSSE (https://github.com/secure-systems-lab/dsse)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from securesystemslib import dsse
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import Key, Signature, SSlibKey

from fedforget.attestation.canonical_json import read_object
from fedforget.attestation.certificate import Certificate
from fedforget.attestation.keys import SigningKey
from fedforget.errors import ReceiptError
from fedforget.runtime.files import refused

PAYLOAD_TYPE = "application/vnd.in-toto+json"
#: Larger files are not read; a receipt of 10,000 persons has 1 MB.
MOST_BYTES = 1 << 24


class Envelope:
    """A payload with one signature, ECDSA on P-256 with SHA-256."""

    def __init__(self, payload: bytes, key_id: str, signature: bytes) -> None:
        self.payload = payload
        self._dsse = dsse.Envelope(payload, PAYLOAD_TYPE, {key_id: Signature(key_id, signature.hex())})

    @classmethod
    def sign(cls, payload: bytes, key: SigningKey) -> Envelope:
        return cls(payload, key.key_id, key.sign(dsse.Envelope(payload, PAYLOAD_TYPE, {}).pae()))

    @classmethod
    def parse(cls, data: bytes, name: str) -> Envelope:
        """Read an envelope strictly; ``name`` is how errors call its file."""
        try:
            values = _exactly(read_object(data), "payload", "payloadType", "signatures")
            if values["payloadType"] != PAYLOAD_TYPE:
                raise ValueError(f"its payload is of the type {values['payloadType']!r}")
            signatures = values["signatures"]
            if not isinstance(signatures, list) or len(signatures) != 1:
                raise ValueError("it does not have one signature")
            signed = _exactly(signatures[0], "keyid", "sig")
            if not isinstance(signed["keyid"], str):
                raise ValueError("keyid is not text")
            return cls(_decoded(values["payload"]), signed["keyid"], _decoded(signed["sig"]))
        except ValueError as error:
            raise ReceiptError(
                f"{name} is not a DSSE envelope: {error}.", "Get it again from who signed it."
            ) from error

    @classmethod
    def load(cls, path: Path) -> Envelope:
        return cls.parse(read_bytes(path), str(path))

    def to_bytes(self) -> bytes:
        """The content of a file."""
        return (json.dumps(self._dsse.to_dict(), indent=2) + "\n").encode()

    @property
    def key_id(self) -> str:
        """The id of the key that is said to have signed it."""
        return next(iter(self._dsse.signatures))

    def signed_by(self, certificates: Sequence[Certificate]) -> list[Certificate]:
        """Those of some certificates by which the signature is valid: renewed ones have the same key."""
        same = [each for each in certificates if each.key_id == self.key_id]
        keys: list[Key] = [SSlibKey.from_crypto(each.public_key, keyid=each.key_id) for each in same[:1]]
        try:
            return same if keys and self._dsse.verify(keys, 1) else []
        except (VerificationError, UnverifiedSignatureError):
            return []


def read_bytes(path: Path) -> bytes:
    """The content of a file, unless it is too large for a receipt."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise refused(path, error) or ReceiptError(
            f"{path} cannot be read: {error.strerror}.", "Give the file of a receipt."
        ) from error
    if len(content) > MOST_BYTES:
        raise ReceiptError(f"{path} is larger than {MOST_BYTES:,} bytes.", "Give the file of one signed receipt.")
    return content


def _exactly(values: Any, *names: str) -> dict[str, Any]:
    if not isinstance(values, dict) or set(values) != set(names):
        raise ValueError(f"it does not have exactly the fields {', '.join(names)}")
    return values


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("a field in base64 is not text")
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a field is not base64: {error}") from error
    if base64.b64encode(content).decode() != text:
        raise ValueError("a field in base64 has stray bits")
    return content
