"""CurrentKey: the signing key in use, opened again after another process has replaced it."""

from __future__ import annotations

import threading
from pathlib import Path

from fedforget.attestation.keys import FOLDER, SigningKey
from fedforget.runtime.files import file_signature


class CurrentKey:
    """The key of a run, or a given one; see ``SigningKey.open``."""

    def __init__(self, run: Path, key: Path | None, certificate: Path | None) -> None:
        self._run, self._given = run, (key, certificate)
        self._file = run / FOLDER / "certificate.pem"
        self._lock = threading.Lock()
        self._key = SigningKey.open(run, *self._given)
        self._seen = file_signature(self._file)

    def get(self) -> SigningKey:
        """The key that is in use now."""
        with self._lock:
            if (signature := file_signature(self._file)) != self._seen:
                self._key, self._seen = SigningKey.open(self._run, *self._given), signature
            return self._key
