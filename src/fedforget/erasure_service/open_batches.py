"""The erasures that the service of a run has begun and not finished, as another process sees them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fedforget.erasure_service.state_file import FOLDER, NAME, open_state
from fedforget.erasure_service.subject_requests import SCHEMA


def open_batches(run: Path) -> frozenset[str]:
    """The ids of the erasures; none if the run has no service."""
    if not (run / FOLDER / NAME).exists():
        return frozenset()
    with closing(open_state(run, SCHEMA)) as db:
        return frozenset(id_ for (id_,) in db.execute("SELECT id FROM batch WHERE state = 'queued'"))
