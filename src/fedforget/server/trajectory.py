"""Trajectory: the stored rounds of a federation.

    history.sqlite   snapshots/   devices/   metrics.jsonl

Without a folder everything is in memory. An erasure builds a new trajectory without the forgotten users, and then
removes the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedforget.errors import RunError
from fedforget.runtime.fallbacks import announce
from fedforget.runtime.randomness import UserId
from fedforget.server.factors import FactorsFolder
from fedforget.server.history import History, RoundRecord
from fedforget.server.metrics import MetricsFile
from fedforget.server.request import ErasureRequest, ItemsOf
from fedforget.server.run_config import RunConfig
from fedforget.server.state import ServerState


class DeviceFiles(Protocol):
    """The files of devices that are simulated in the server's process; they are part of the trajectory."""

    def last_round(self) -> int:
        """The newest round with an entry; 0 if there is none."""

    def branch(
        self, folder: Path | None, until: int, without: Sequence[UserId], items: ItemsOf, additions: int
    ) -> DeviceFiles:
        """New files with the log entries up to a round and the data after some additions.

        They are without some users, and without some items of other users.
        """

    def copy_to(self, other: Any) -> None:
        """Copy every log entry into other files."""

    def close(self) -> None:
        """Close the files."""


#: Opens the files of simulated devices in a folder (None: in memory).
OpenDevices = Callable[[Path | None, RunConfig], DeviceFiles]


class Trajectory:
    """The server's history and metrics of one trajectory and, in a simulation, the devices' files."""

    def __init__(self, folder: Path | None, history: History, devices: DeviceFiles | None = None) -> None:
        self.folder = folder
        self.history = history
        self.devices = devices
        self.metrics = MetricsFile(None if folder is None else folder / "metrics.jsonl")

    @classmethod
    def open(cls, folder: Path | None, config: RunConfig, open_devices: OpenDevices | None = None) -> Trajectory:
        """Open the trajectory in a folder, or create it."""
        history = History(folder, config.model.dense_layout, config.server.snapshot_every)
        return cls(folder, history, None if open_devices is None else open_devices(_devices(folder), config))

    def branch(self, folder: Path | None, until: int, request: ErasureRequest) -> Trajectory:
        """A new trajectory that begins as this one up to a round, without what a request asks to forget."""
        without, items = request.users, request.items_of
        history = self.history.branch(folder, until, without, request.id)
        history.membership.set_erased({part.user: part.number for part in request.partial if part.number})
        devices = self.devices
        if devices is not None:
            devices = devices.branch(_devices(folder), until, without, items, self.history.membership.additions())
        other = Trajectory(folder, history, devices)
        FactorsFolder(self.folder).link_to(FactorsFolder(folder), until)
        for round_ in range(1, until + 1):  # the old lines count the forgotten users
            other.add_metrics(other.history.record(round_))
        return other

    def copy_to(self, other: Trajectory) -> None:
        """Copy everything into an empty trajectory, whose log settings may differ."""
        self.history.copy_to(other.history, self.history.last_round)
        if self.devices is not None:
            self.devices.copy_to(other.devices)
        for line in self.metrics.read():
            other.metrics.append(line)

    def close(self) -> None:
        self.history.close()
        if self.devices is not None:
            self.devices.close()

    def last_complete_round(self) -> int:
        """The last round that history, snapshots and device logs all have; 0 before the first."""
        finished = self.history.last_round
        logged = max(finished, 0) if self.devices is None else self.devices.last_round()
        complete = 0
        if finished >= 0:
            usable = self.history.usable_rounds()
            complete = next((r for r in usable if self.history.last_active_round(r) <= logged), -1)
        if complete < 0:
            raise RunError(
                f"{self.folder} has no usable snapshot.", "Restore its snapshots folder, or start a new run."
            )
        if self.folder is not None and (lost := self.history.missing_snapshots()) and complete == finished:
            text = "snapshots are missing; an erasure that needs one replays more rounds"
            warning = (
                f"{len(lost)} snapshots are missing, such as {lost[0]}. An erasure that needs one replays more rounds."
            )
            announce(warning, lost[0].parent, text, stacklevel=2)
        if complete < finished or (finished < 0 < logged):
            text = (
                f"continues from round {complete}: its history ends at round {max(finished, 0)}, the log "
                f"of its devices at {logged}, and snapshots may be missing. Training computes the rest again"
            )
            announce(f"{self.folder} {text}.", self.folder or "", text, stacklevel=2)
        return complete

    def is_at(self, round_: int) -> bool:
        """Whether history and logs both end with this round."""
        if self.history.last_round != round_:
            return False
        return self.devices is None or self.devices.last_round() == self.history.last_active_round(round_)

    def drop_after(self, round_: int, state: ServerState) -> None:
        """Remove every later round, and files that a crash left behind; store the initial state if there is none."""
        self.history.drop_after(round_)
        if self.history.last_round < 0:
            self.history.commit([RoundRecord(0, [], None, 0.0)], state)
        self.metrics.drop_after(round_)
        written = {line["round"] for line in self.metrics.read() if "loss" in line}
        for missing in sorted(set(range(1, round_ + 1)) - written):
            self.add_metrics(self.history.record(missing))

    def add_metrics(self, record: RoundRecord) -> None:
        """Add a finished round's line to ``metrics.jsonl``."""
        line: dict[str, Any] = {"round": record.round, "loss": record.loss, "seconds": round(record.seconds, 6)}
        self.metrics.append(line | {"clients": len(record.participants), "failures": len(record.failures)})


def _devices(folder: Path | None) -> Path | None:
    return None if folder is None else folder / "devices"
