"""The erasures that the service of a run has begun and not finished, as another process sees them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fedforget.erasure_service import batches, subject_requests
from fedforget.erasure_service.state_file import FOLDER, NAME, open_state


def open_batches(run: Path) -> frozenset[str]:
    """The ids of the erasures; none if the run has no service."""
    if not (run / FOLDER / NAME).exists():
        return frozenset()
    with closing(open_state(run, subject_requests.SCHEMA + batches.SCHEMA)) as db:
        return frozenset(id_ for (id_,) in db.execute("SELECT id FROM batch WHERE state = 'queued'"))
