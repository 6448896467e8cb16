"""Queue: requests to forget that were made while a server runs elsewhere, each a file in ``queue/`` of its run folder.

``TIME-ID.json`` is a request that waits; the server takes them in the order of time. ``ID.refused`` says why one was
not carried out; its users stay.
"""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from pathlib import Path

from fedforget.errors import RunError, RunWarning
from fedforget.files import make_folder, write_file
from fedforget.request import Request

#: After so many seconds nobody is writing a file any more.
STALE = 60.0


class Queue:
    """The requests that wait in a run folder."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "queue"

    def add(self, request: Request) -> None:
        """Let a request wait to be carried out."""
        make_folder(self.folder)
        request.save(self.folder / f"{time.time_ns():020d}-{request.id}.json")

    def waiting(self) -> list[Request]:
        """The requests that wait, the oldest first."""
        found = []
        for path in sorted(self.folder.glob("[0-9]*-*.json")):
            try:
                request = Request.load(path)
            except RunError as error:
                warnings.warn(f"{error.problem} It is passed over. Ask again, and remove it.", RunWarning, stacklevel=2)
            else:
                found += [request] if request is not None else []
        return found

    def remove(self, request: str) -> None:
        """A request is done: nothing of it stays, nor of what a crash left half written some time ago."""
        for path in self.folder.glob(f"*-{request}.json"):
            path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.part"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE:
                    path.unlink()

    def refuse(self, request: str, reason: str) -> None:
        """A request was not carried out: keep the reason for whoever made it."""
        make_folder(self.folder)
        write_file(self.folder / f"{request}.refused", reason.encode())
        self.remove(request)

    def refused(self) -> dict[str, str]:
        """The reason of every request that was not carried out."""
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.refused"))}
