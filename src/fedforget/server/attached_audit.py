"""AttachedAudit: the audit of forgetting that says most about an erasure: of its method, on the run's settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.errors import FedForgetError
from fedforget.server.coordinator import Coordinator
from fedforget.server.receipt import Receipt

#: Parts of a configuration that an audit must share with a run.
SAME = ("model", "sampler", "training", "server")
#: The kind of verdict that contradicts an erasure.
VISIBLE = "visible"
#: What is raised for details that are damaged, or of another version.
MALFORMED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, FedForgetError)


@dataclass(frozen=True)
class AttachedAudit:
    """An audit by path and digest, and its verdict on a method. ``differs`` is what is not as in the run."""

    path: str
    sha256: str
    finished: str
    method: str
    verdict: str
    kind: str | None
    contradicts: bool
    differs: tuple[str, ...]
    same_data: bool
    same_source: bool

    @property
    def rank(self) -> tuple[bool, bool, datetime]:
        """An audit of the same data is preferred, then a newer one."""
        finished = datetime.fromisoformat(self.finished)
        aware = finished if finished.tzinfo else finished.replace(tzinfo=UTC)
        return self.same_data, self.same_source, aware


def attached_audit(
    fed: Coordinator, receipt: Receipt, folders: Iterable[Path]
) -> tuple[AttachedAudit | None, list[str]]:
    """The audit of a receipt's method on the model and settings of a run, and the files that could not be read."""
    found, unreadable = [], []
    for folder in folders:
        for path in [folder / "details.json", *sorted(folder.glob("*/details.json"))]:
            if path.exists():
                try:
                    found += [(audit.rank, audit) for audit in _audits(fed, receipt, path)]
                except MALFORMED as error:
                    unreadable.append(f"{path}: {type(error).__name__}: {error}")
    return max(found, key=lambda one: one[0])[1] if found else None, unreadable


def _audits(fed: Coordinator, receipt: Receipt, path: Path) -> Iterator[AttachedAudit]:
    """The verdicts of one audit that are about the receipt's method and the run's settings."""
    content = path.read_bytes()
    details = json.loads(content)
    settings, config = details["settings"], _plain(fed.config.to_dict())
    if any(settings["config"].get(name) != config[name] for name in SAME):
        return
    data, own = details.get("data") or {}, fed.config.data
    same_data = data.get("digest") is not None and data["digest"] == own.get("digest")
    source, own_source = str(data.get("source") or ""), str(own.get("name") or "")
    differs = [] if same_data else [_other_data(source, data)]
    if settings.get("rounds") != fed.rounds:
        differs.append(f"after {settings.get('rounds')} rounds, not {fed.rounds}")
    for name, method in settings["methods"].items():
        if method == _plain(receipt.method):
            kind = (details.get("verdict_kinds") or {}).get(name)
            yield AttachedAudit(
                path=str(path),
                sha256=hashlib.sha256(content).hexdigest(),
                finished=str(details["finished"]),
                method=name,
                verdict=str(details["verdicts"][name]),
                kind=None if kind is None else str(kind),
                contradicts=kind == VISIBLE,
                differs=tuple(differs),
                same_data=same_data,
                same_source=bool(source) and Path(source).name == Path(own_source).name,
            )


def _other_data(source: str, data: Mapping[str, Any]) -> str:
    """In words that an audit was on other data; that of a run changes with every erasure."""
    size = f"{data['users']} users, {data['items']} items" if {"users", "items"} <= data.keys() else ""
    named = ", ".join(part for part in (source, size) if part)
    return f"on other data ({named})" if named else "on other data, which it does not name"


def _plain(values: Any) -> Any:
    """Values as they are after they were written as JSON."""
    return json.loads(json.dumps(values))
