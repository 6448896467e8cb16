"""SigningKey: the key of a run that signs its receipts, in ``service/signing/`` of its folder.

    key.pem            the private key (PKCS 8, ECDSA on P-256), only for its owner; not there if a key was given
    certificate.pem    the certificate of the key in use, to hand out
    retired/NNN.pem    certificates of earlier keys, oldest first, by which their receipts are verified
    next.pem           while the key is being replaced: the new certificate, after the new private key if it is stored

``next.pem`` is written first and removed last, and every step between can be repeated, so that a killed replacement is
finished when the key is next opened.
"""

from __future__ import annotations

import re
import stat
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedforget.attestation.certificate import Certificate, key_id, self_signed
from fedforget.errors import SigningKeyError
from fedforget.runtime.files import make_folder, only_writer, refused, write_file
from fedforget.server.config_file import read_config

FOLDER = Path("service") / "signing"
CURVE = ec.SECP256R1()
NUMBER = re.compile(r"[0-9]+")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*", re.DOTALL)


class SigningKey:
    """A private key with its certificate; made by ``open`` and ``rotate``."""

    def __init__(self, private: ec.EllipticCurvePrivateKey, certificate: Certificate, folder: Path) -> None:
        self._private = private
        self._folder = folder
        self.certificate = certificate

    @classmethod
    def open(cls, run: Path, key: Path | None = None, certificate: Path | None = None) -> SigningKey:
        """The key of a run, which is made at first; or a given one, with a certificate or a self-signed one.

        The certificate of a key that was in use before is kept, its private key is not.
        """
        if certificate is not None and key is None:
            raise SigningKeyError(f"The certificate {certificate} was given without its key.", "Give the key too.")
        folder = make_folder(run / FOLDER)
        with only_writer(folder, wait=True):
            _finish_replacement(folder)
            if key is not None:
                return cls._given(run, folder, key, certificate)
            if not (folder / "key.pem").exists():
                if (folder / "certificate.pem").exists():
                    raise SigningKeyError(
                        f"{folder} has a certificate, but its key is not there: it was given from another place.",
                        "Give that key again, or make a new one: fedforget receipts rotate-key RUN.",
                    )
                _replace_key(folder, *_new_key(run))
            return cls._stored(folder)

    @classmethod
    def rotate(cls, run: Path) -> SigningKey:
        """Put a new key in use; receipts that were signed before stay verifiable. The old private key is removed."""
        folder = make_folder(run / FOLDER)
        with only_writer(folder, wait=True):
            _finish_replacement(folder)
            _replace_key(folder, *_new_key(run))
            return cls._stored(folder)

    @classmethod
    def _stored(cls, folder: Path) -> SigningKey:
        private = load_private(folder / "key.pem")
        certificate = Certificate.parse(_read(folder / "certificate.pem"), str(folder / "certificate.pem"))
        _check_pair(private, certificate, folder / "key.pem", folder / "certificate.pem")
        return cls(private, certificate, folder)

    @classmethod
    def _given(cls, run: Path, folder: Path, key: Path, certificate: Path | None) -> SigningKey:
        private = load_private(key)
        current = _current(folder)
        if certificate is not None:
            chosen = Certificate.parse(_read(certificate), str(certificate))
            _check_pair(private, chosen, key, certificate)
        elif current is not None and current.key_id == key_id(private.public_key()):
            chosen = current
        else:
            chosen = Certificate.parse(self_signed(private, _federation(run), datetime.now(UTC)), str(key))
        if current is None or current.pem != chosen.pem:
            if chosen.key_id in {each.key_id for each in retired(folder)} - {current and current.key_id}:
                raise SigningKeyError(
                    f"The key {key} was replaced before and is no longer used for this run.", "Give a newer key."
                )
            _replace_key(folder, "", chosen.pem)
        return cls(private, chosen, folder)

    @property
    def certificate_pem(self) -> str:
        """The certificate, in PEM."""
        return self.certificate.pem

    @property
    def key_id(self) -> str:
        """The SHA-256 of the public key."""
        return self.certificate.key_id

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes: ECDSA with SHA-256, in DER."""
        return self._private.sign(data, ec.ECDSA(hashes.SHA256()))

    def check_in_use(self) -> None:
        """Raise an error if the key was replaced after it was opened."""
        current = _current(self._folder)
        if current is None or current.pem != self.certificate.pem:
            raise SigningKeyError(
                f"The key in {self._folder} was replaced after this process had opened it.",
                "Open it again, or restart.",
            )


def load_private(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key that only its owner can read."""
    content = _read(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise SigningKeyError(f"{path} can be read by others than its owner (mode {mode:04o}).", f"chmod 600 {path}")
    try:
        key = load_pem_private_key(content.encode(), password=None)
    except Exception as error:  # the message may quote the file
        reason = "it has a password" if isinstance(error, TypeError) else "it is damaged or of another format"
        raise SigningKeyError(
            f"{path} cannot be read as a private key: {reason}.",
            "Give a key in PEM without a password: openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
        ) from None
    if not (isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)):
        kind = key.curve.name if isinstance(key, ec.EllipticCurvePrivateKey) else type(key).__name__.strip("_")
        raise SigningKeyError(
            f"{path} holds a key of another kind ({kind}).", "Give one for ECDSA on the curve P-256 (prime256v1)."
        )
    return key


def is_given(run: Path) -> bool:
    """Whether the key in use is kept elsewhere: the run folder has its certificate only."""
    folder = run / FOLDER
    return (folder / "certificate.pem").exists() and not (folder / "key.pem").exists()


def stored_certificates(run: Path) -> list[Certificate]:
    """The certificates of a run in the order in which their keys were in use; the last one is in use now."""
    folder = run / FOLDER
    current = _current(folder)
    return [*retired(folder), *([] if current is None else [current])]


def retired(folder: Path) -> list[Certificate]:
    """The certificates of earlier keys, oldest first."""
    return [Certificate.parse(_read(path), str(path)) for _, path in sorted(_numbered(folder).items())]


def _numbered(folder: Path) -> dict[int, Path]:
    """The files of the certificates of earlier keys, by their numbers."""
    return {int(path.stem): path for path in (folder / "retired").glob("*.pem") if NUMBER.fullmatch(path.stem)}


def _current(folder: Path) -> Certificate | None:
    path = folder / "certificate.pem"
    return Certificate.parse(_read(path), str(path)) if path.exists() else None


def _new_key(run: Path) -> tuple[str, str]:
    """A new private key and its certificate."""
    private = ec.generate_private_key(CURVE)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return pem, self_signed(private, _federation(run), datetime.now(UTC))


def _federation(run: Path) -> str:
    return str(read_config(run / "config.toml")["id"])


def _replace_key(folder: Path, private: str, certificate: str) -> None:
    """Put another certificate in use, with the private key to store; '' if that is kept elsewhere."""
    write_file(folder / "next.pem", (private + certificate).encode())
    _finish_replacement(folder)


def _finish_replacement(folder: Path) -> None:
    """Finish a replacement that was begun, if any, and remove what a kill left of others."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)
    path = folder / "next.pem"
    if not path.exists():
        return
    content = _read(path)
    found = CERTIFICATE.search(content)
    private, certificate = (content[: found.start()], found[0]) if found else ("", "")
    new, old = Certificate.parse(certificate, str(path)), _current(folder)
    earlier = retired(folder)
    if old is not None and old.pem not in {new.pem, *(each.pem for each in earlier)}:
        number = max(_numbered(folder), default=0) + 1
        write_file(make_folder(folder / "retired") / f"{number:03d}.pem", old.pem.encode(), private=False)
    if private:
        write_file(folder / "key.pem", private.encode())
    else:
        (folder / "key.pem").unlink(missing_ok=True)
    write_file(folder / "certificate.pem", certificate.encode(), private=False)
    path.unlink()


def _check_pair(private: ec.EllipticCurvePrivateKey, certificate: Certificate, key: Path, file: Path) -> None:
    if key_id(private.public_key()) != certificate.key_id:
        raise SigningKeyError(
            f"The certificate {file} does not belong to the key {key}.",
            f"Compare: openssl x509 -in {file} -noout -pubkey; openssl pkey -in {key} -pubout",
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise refused(path, error) or SigningKeyError(
            f"{path} cannot be read: {error}.", "Restore it from a copy, or give another file in PEM."
        ) from error
