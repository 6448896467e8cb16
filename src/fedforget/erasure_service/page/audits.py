"""NewestAudit: the audit of forgetting of the method that a run uses, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.erasure_service.page.background import Background
from fedforget.erasure_service.page.times import Moment
from fedforget.runtime.files import file_signature
from fedforget.server.attached_audit import attached_audit, audit_files
from fedforget.server.config_file import read_config


@dataclass(frozen=True)
class Audit:
    """An audit of forgetting: of which method, what it found, and when. ``differs`` is what is not as in the run."""

    name: str
    method: str
    verdict: str
    finished: Moment | None
    differs: Sequence[str]


class NewestAudit(Background[Audit | None]):
    """The newest audit in some folders, or in folders within them. ``method`` returns the run's default method."""

    def __init__(self, run: Path, folders: Sequence[Path], method: Mapping[str, Any]) -> None:
        super().__init__(
            "reading of audits",
            lambda: _newest(run, folders, method),
            lambda: [(path, file_signature(path)) for path in audit_files(folders)],
        )


def _newest(run: Path, folders: Sequence[Path], method: Mapping[str, Any]) -> Audit | None:
    """The audit of a method that is nearest to the run's settings and data."""
    found, _ = attached_audit(read_config(run / "config.toml"), method, folders, other_settings=True)
    if found is None:
        return None
    name = Path(found.path).parent.name
    return Audit(name, found.method, found.verdict, Moment.parse(found.finished), found.differs)
