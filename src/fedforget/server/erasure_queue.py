"""ErasureQueue: erasure requests for whoever carries them out, as files in ``queue/`` of its run folder.

``TIME-ID.json`` is a request; the oldest is carried out first. ``ID.refused`` holds the reason why a request was not
carried out.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedforget.errors import RunError, RunWarning
from fedforget.runtime.files import make_folder, write_file
from fedforget.server.request import ErasureRequest

#: Why a request of nobody in the federation is not carried out.
NO_MEMBER = "None of its users is a member."
#: Part of why some items of a user cannot be forgotten, while the whole user can.
NO_ITEMS_LEFT = "would have no interactions left in a round that it took part in"
#: Age in seconds at which a partly written file is taken for one that a crash left.
STALE = 60.0


class ErasureQueue:
    """The queued requests of a run folder."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "queue"

    def add(self, request: ErasureRequest) -> None:
        make_folder(self.folder)
        request.save(self.folder / f"{time.time_ns():020d}-{request.id}.json")

    def waiting(self) -> list[ErasureRequest]:
        """The requests, oldest first. Files that cannot be read are skipped with a warning."""
        return list(self._loaded())

    def oldest(self) -> ErasureRequest | None:
        """The oldest request; newer ones are not read."""
        return next(self._loaded(), None)

    def remove(self, request: str) -> None:
        """Remove a request, also a partly written one, and old partly written files of others."""
        for pattern in (f"*-{request}.json", f".*-{request}.json.part"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.part"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE:
                    path.unlink()

    def refuse(self, request: str, reason: str) -> None:
        """Store the reason why a request is not carried out, and remove it."""
        make_folder(self.folder)
        write_file(self._refusal(request), reason.encode())
        self.remove(request)

    def why_refused(self, request: str) -> str | None:
        """The reason why a request was refused; None if it was not."""
        try:
            return self._refusal(request).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def forget_refusal(self, request: str) -> None:
        """Remove the reason why a request was refused, which may name a user."""
        for path in (self._refusal(request), self.folder / f".{request}.refused.part"):
            path.unlink(missing_ok=True)

    def _refusal(self, request: str) -> Path:
        return self.folder / f"{request}.refused"

    def _loaded(self) -> Iterator[ErasureRequest]:
        for path in sorted(self.folder.glob("[0-9]*-*.json")):
            try:
                request = ErasureRequest.load(path)
            except RunError as error:
                text = f"{error.problem} It is skipped. Remove the file and ask again."
                warnings.warn(text, RunWarning, stacklevel=3)
            else:
                if request is not None:  # removed meanwhile
                    yield request

    def refused(self) -> dict[str, str]:
        """The refused requests, with their reasons."""
        paths = sorted(self.folder.glob("*.refused"))
        return {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in paths}
