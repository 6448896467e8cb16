"""QueueFiles: where an erasure is between the queue of a run and its receipt, seen from the files of the run folder."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

from fedforget.attestation.stored import StoredReceipts
from fedforget.errors import RunError, SystemLimitError
from fedforget.runtime.files import file_signature
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.request import ErasureRequest

#: The files that say what is known of receipts. An empty write-ahead log, which comes and goes, is left out.
RECEIPTS = (
    "config.toml",
    "trajectory-*/history.sqlite",
    "trajectory-*/history.sqlite-wal",
    "receipts/*.json",
    "receipts/signed/*.json",
)
#: Names and states of files.
Signature = tuple[tuple[str, tuple[int, int, int]], ...]


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
        self._intact: dict[str, object] = {}
        self._read: object = None
        self._history: frozenset[str] = frozenset()

    def place(self, erasure: str) -> Place:
        """Where an erasure is. While it is carried out it is also in the queue; its receipt is in the history first."""
        if _read(self.run / "request.json").get("id") == erasure:
            return Place.RUNNING
        if self._is_queued(erasure):
            return Place.QUEUED
        if self._in_history(erasure):
            return Place.DONE
        return Place.ABSENT if self.queue.why_refused(erasure) is None else Place.REFUSED

    def _in_history(self, erasure: str) -> bool:
        """Whether an erasure has a receipt in the history; a file in ``receipts/`` alone does not show that it is done.

        The history is read again only when it has changed.
        """
        if (state := self.signature()) != self._read:
            self._history, self._read = frozenset(StoredReceipts.read(self.run).history), state
        return erasure in self._history

    def add(self, request: ErasureRequest) -> None:
        """Queue an erasure."""
        self.queue.add(request)

    def known(self) -> set[str]:
        """The erasures of all files in the queue: whole or partly written, or the reason of a refusal."""
        names = (path.name.removeprefix(".").removesuffix(".part") for path in self.queue.folder.glob("*"))
        return {Path(name).stem.rpartition("-")[2] for name in names}

    def forget(self, erasure: str) -> None:
        """Remove what is left of an erasure in the queue."""
        self.queue.remove(erasure)
        self.queue.forget_refusal(erasure)
        self._intact.pop(erasure, None)

    def signature(self) -> Signature:
        """What changes whenever a receipt is written: in the history, which is first, in its file, or signed."""
        found = ((str(path), file_signature(path)) for name in RECEIPTS for path in self.run.glob(name))
        return tuple(sorted((path, each) for path, each in found if each is not None and each[1]))

    def _is_queued(self, erasure: str) -> bool:
        """Whether an erasure is in the queue. A damaged file of it is removed: nobody would carry it out."""
        found = list(self.queue.folder.glob(f"[0-9]*-{erasure}.json"))
        for path in found:
            if (signature := file_signature(path)) != self._intact.get(erasure):
                try:
                    ErasureRequest.load(path)
                except SystemLimitError:
                    raise
                except RunError:
                    self.queue.remove(erasure)
                    return False
                self._intact[erasure] = signature
        return bool(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
