"""QueueFiles: where an erasure is between the queue of a run and its receipt, seen from the files of the run folder."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest


class Place(Enum):
    """Where an erasure is."""

    ABSENT = "absent"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"


class QueueFiles:
    """The files of a run folder that tell where its erasures are; another process carries them out."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.queue = ErasureQueue(run)

    def place(self, erasure: str) -> Place:
        """Where an erasure is. It moves from the queue to ``request.json`` to its receipt, so we look in that order."""
        if any(self.queue.folder.glob(f"[0-9]*-{erasure}.json")):
            return Place.QUEUED
        if _read(self.run / "request.json").get("id") == erasure:
            return Place.RUNNING
        if self._receipt(erasure).exists():
            return Place.DONE
        return Place.REFUSED if erasure in self.queue.refused() else Place.ABSENT

    def add(self, content: dict[str, Any]) -> None:
        """Queue an erasure."""
        self.queue.add(ErasureRequest.from_dict(content))

    def signature(self) -> tuple[tuple[str, int], ...]:
        """What changes whenever a receipt is written."""
        return tuple(sorted((path.name, path.stat().st_mtime_ns) for path in self.run.glob("receipts/*.json")))

    def why_refused(self, erasure: str) -> str:
        """The reason why an erasure was refused."""
        return self.queue.refused().get(erasure, "")

    def _receipt(self, erasure: str) -> Path:
        return self.run / "receipts" / f"{erasure}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
