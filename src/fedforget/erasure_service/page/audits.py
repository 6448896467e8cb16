"""NewestAudit: the newest audit of forgetting of the method that a run uses, from the folders of audits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.erasure_service.page.background import Background
from fedforget.erasure_service.page.times import Moment
from fedforget.runtime.files import file_signature
from fedforget.server.config_file import read_config

#: Parts of a configuration that an audit shares with a run, as in ``server.request_audit``, which loads much more.
SAME = ("model", "sampler", "training", "server")


@dataclass(frozen=True)
class Audit:
    """An audit of forgetting: of which method, on what data, what it found, and when.

    ``same_settings`` and ``same_data`` compare it with the run; a run on a network does not know its data: None.
    """

    name: str
    method: str
    verdict: str
    finished: Moment | None
    data: str
    rounds: int
    same_settings: bool
    same_data: bool | None


class NewestAudit(Background[Audit | None]):
    """The newest audit in some folders, or in folders within them. ``method`` returns the run's default method."""

    def __init__(self, run: Path, folders: Sequence[Path], method: Mapping[str, Any]) -> None:
        super().__init__(
            "reading of audits",
            lambda: _newest(run, folders, method),
            lambda: [(path, file_signature(path)) for path in _files(folders)],
        )


def _newest(run: Path, folders: Sequence[Path], method: Mapping[str, Any]) -> Audit | None:
    """The newest audit of a method; one on the data of the run and with its settings is preferred."""
    config, found = _without_none(read_config(run / "config.toml")), []
    for path in _files(folders):
        details = _read(path)
        try:
            settings = details["settings"]
            audited = _without_none(settings["config"])
            same = all(audited.get(name) == config.get(name) for name in SAME)
            data, own = details["data"], config.get("data", {}).get("digest")
            same_data = None if own is None else data["digest"] == own
            described = f"{data['source'] or 'data'} with {data['users']:,} users and {data['items']:,} items"
            for name, audited_method in settings["methods"].items():
                if audited_method is not None and dict(audited_method) == dict(method):
                    moment, verdict = Moment.parse(details["finished"]), str(details["verdicts"][name])
                    rounds = int(settings["rounds"])
                    audit = Audit(path.parent.name, name, verdict, moment, described, rounds, same, same_data)
                    found.append((bool(same_data), same, str(details["finished"]), audit))
        except (KeyError, TypeError, AttributeError, ValueError):
            continue  # not an audit of forgetting, or of another version
    return max(found, key=lambda one: one[:3])[3] if found else None


def _files(folders: Sequence[Path]) -> list[Path]:
    found = [path for folder in folders for path in (folder / "details.json", *folder.glob("*/details.json"))]
    return sorted(path for path in found if path.is_file())


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _without_none(value: Any) -> Any:
    """Settings without those that are not set, which TOML cannot hold."""
    if isinstance(value, Mapping):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return value
