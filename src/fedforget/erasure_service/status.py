"""RunStatus: what the worker reports of a run, as one line of JSON. It names no users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

#: Rounds in ``RunStatus.recent``.
RECENT = 20


@dataclass(frozen=True)
class Progress:
    """The replay of an erasure: ``done`` of ``total`` rounds; ``total`` is 0 while the replay is being prepared."""

    done: int
    total: int


@dataclass(frozen=True)
class RoundSummary:
    """One round: the updates asked for and received, and the numbers of those that are missing, by reason."""

    round: int
    asked: int
    answered: int
    failures: dict[str, int]
    seconds: float
    loss: float | None


@dataclass(frozen=True)
class Accuracy:
    """The metrics of the model after a round, as in ``metrics.jsonl``: means over ``users`` users, at ``k``."""

    round: int
    k: int
    users: int
    sampled: dict[str, float]
    full: dict[str, float]


@dataclass(frozen=True)
class RunStatus:
    """How far a run is, and which erasure is being carried out.

    ``engine`` is "simulation" or "flower"; ``nodes`` counts registered nodes, None in a simulation. ``method`` are the
    settings of the default method. ``waiting`` is the id of the erasure that is being carried out or was interrupted,
    ``progress`` its replay. ``estimate_seconds`` is the expected duration of a worst-case erasure, of a user of the
    first round, whoever asks; None if it is not known, or if nobody can be forgotten, for the reason in ``obstacle``.
    ``fallbacks`` counts damaged or missing files that were replaced. ``error`` says why the run cannot be read or an
    erasure does not go on. ``updated`` is when it was reported, in UTC (RFC 3339).

    Before the run could be read, everything but ``error`` and ``updated`` is empty.
    """

    engine: str = ""
    federation: str = ""
    model: str = ""
    method: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0
    members: int = 0
    items: int = 0
    nodes: int | None = None
    trajectory: int = 0
    waiting: str | None = None
    progress: Progress | None = None
    estimate_seconds: float | None = None
    obstacle: str | None = None
    recent: tuple[RoundSummary, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    fallbacks: int = 0
    error: str | None = None
    updated: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunStatus:
        """From plain values; unknown ones are ignored."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        progress = known.get("progress")
        return cls(
            **{
                **known,
                "progress": None if progress is None else Progress(**progress),
                "recent": tuple(RoundSummary(**each) for each in known.get("recent", ())),
                "accuracy": tuple(Accuracy(**each) for each in known.get("accuracy", ())),
            }
        )

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_line(cls, line: bytes) -> RunStatus | None:
        """The status in a line; None if it has none."""
        try:
            values = json.loads(line)
            return cls.from_dict(values) if isinstance(values, dict) else None
        except (ValueError, TypeError):
            return None


def now() -> str:
    """The time, in UTC (RFC 3339)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
