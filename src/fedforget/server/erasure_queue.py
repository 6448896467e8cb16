"""ErasureQueue: erasure requests for a running server, files in ``queue/`` of its run folder.

``TIME-ID.json`` is a request that waits; the server takes them in the order of time. ``ID.refused`` has the reason why
a request was not carried out.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from pathlib import Path

from fedforget.errors import RunError, RunWarning
from fedforget.runtime.files import make_folder, write_file
from fedforget.server.request import ErasureRequest

#: Seconds after which a partly written file was left by a crash.
STALE = 60.0


class ErasureQueue:
    """The requests that wait in a run folder."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "queue"

    def add(self, request: ErasureRequest) -> None:
        """Add a request."""
        make_folder(self.folder)
        request.save(self.folder / f"{time.time_ns():020d}-{request.id}.json")

    def waiting(self) -> list[ErasureRequest]:
        """The requests, oldest first. Files that cannot be read are skipped with a warning."""
        found = []
        for path in sorted(self.folder.glob("[0-9]*-*.json")):
            try:
                request = ErasureRequest.load(path)
            except RunError as error:
                warnings.warn(
                    f"{error.problem} It is skipped. Remove the file and ask again.", RunWarning, stacklevel=2
                )
            else:
                found += [request] if request is not None else []
        return found

    def remove(self, request: str) -> None:
        """Remove a request, and partly written files that a crash left."""
        for path in self.folder.glob(f"*-{request}.json"):
            path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.part"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE:
                    path.unlink()

    def refuse(self, request: str, reason: str) -> None:
        """Remove a request that is not carried out, and store the reason."""
        make_folder(self.folder)
        write_file(self.folder / f"{request}.refused", reason.encode())
        self.remove(request)

    def refused(self) -> dict[str, str]:
        """The reason of each refused request."""
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.refused"))}
