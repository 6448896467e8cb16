"""AttachedAudit: the audit of forgetting that says most about a run's erasures: of its method, settings and data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.errors import FedForgetError

#: Parts of a configuration that an audit must share with a run.
SAME = ("model", "sampler", "training", "server")
#: The kind of verdict that contradicts an erasure.
VISIBLE = "visible"
#: What is raised for details that are damaged, or of another version.
MALFORMED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, FedForgetError)


@dataclass(frozen=True)
class AttachedAudit:
    """An audit by path and digest, and its verdict on a method. ``differs`` is what is not as in the run, in words."""

    path: str
    sha256: str
    finished: str
    method: str
    verdict: str
    kind: str | None
    contradicts: bool
    differs: tuple[str, ...]
    same_settings: bool
    same_data: bool
    same_source: bool

    @property
    def rank(self) -> tuple[bool, bool, bool, datetime]:
        """An audit on the run's settings and data is preferred, then a newer one."""
        finished = datetime.fromisoformat(self.finished)
        aware = finished if finished.tzinfo else finished.replace(tzinfo=UTC)
        return self.same_settings, self.same_data, self.same_source, aware


def attached_audit(
    config: Mapping[str, Any],
    method: Mapping[str, Any],
    folders: Iterable[Path],
    *,
    rounds: int | None = None,
    other_settings: bool = False,
) -> tuple[AttachedAudit | None, list[str]]:
    """The audit of a method that is nearest to a run with a configuration, and the files that could not be read.

    Audits with other settings than the run's count only with ``other_settings``. ``rounds`` are those of the run.
    """
    found, unreadable = [], []
    for path in audit_files(folders):
        try:
            audits = list(_audits(path, _plain(config), _plain(method), rounds))
            found += [(audit.rank, audit) for audit in audits if audit.same_settings or other_settings]
        except MALFORMED as error:
            unreadable.append(f"{path}: {type(error).__name__}: {error}")
    return max(found, key=lambda one: one[0])[1] if found else None, unreadable


def audit_command(model: str, method: Mapping[str, Any]) -> str:
    """The command that audits a method as a run uses it."""
    condensed = method.get("name") == "retrain" and (method.get("steps") or method.get("stride", 1) > 1)
    name = "retrain-condensed" if condensed else str(method.get("name"))
    return f"fedforget audit forgetting DATA --model {model} --methods {name} --out audits/NAME"


def audit_files(folders: Iterable[Path]) -> list[Path]:
    """The details of audits in some folders, or in folders within them."""
    found = [path for folder in folders for path in (folder / "details.json", *sorted(folder.glob("*/details.json")))]
    return [path for path in found if path.exists()]


def _audits(
    path: Path, config: Mapping[str, Any], method: Mapping[str, Any], rounds: int | None
) -> Iterator[AttachedAudit]:
    """The verdicts of one audit on a method."""
    content = path.read_bytes()
    details = json.loads(content)
    settings, audited = details["settings"], _plain(details["settings"]["config"])
    same_settings = all(audited.get(name) == config.get(name) for name in SAME)
    data, own = details.get("data") or {}, config.get("data") or {}
    same_data = data.get("digest") is not None and data["digest"] == own.get("digest")
    source = str(data.get("source") or "")
    same_source = bool(source) and Path(source).name == Path(str(own.get("name") or "")).name
    differs = [] if same_settings else ["with other settings"]
    differs += [] if same_data else [_other_data(source, data, same_source=same_source)]
    if rounds is not None and settings.get("rounds") != rounds:
        differs.append(f"after {settings.get('rounds')} rounds, not {rounds}")
    for name, audited_method in settings["methods"].items():
        if audited_method is not None and _plain(audited_method) == method:
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
                same_settings=same_settings,
                same_data=same_data,
                same_source=same_source,
            )


def _other_data(source: str, data: Mapping[str, Any], *, same_source: bool) -> str:
    """In words that an audit was on other data; those of a run change with every erasure and addition."""
    size = f"{data['users']} users, {data['items']} items" if {"users", "items"} <= data.keys() else ""
    named = ", ".join(part for part in (source, size) if part)
    if same_source:
        return f"on data of the same name, in another state or split ({named})"
    return f"on other data ({named})" if named else "on other data, which it does not name"


def _plain(values: Any) -> Any:
    """Values as they are after they were written as JSON, without those that are not set, which TOML cannot hold."""
    if isinstance(values, Mapping):
        return {name: _plain(value) for name, value in values.items() if value is not None}
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values
