"""Trajectory: the rounds of a federation as they went, on both sides, and the last one on which the sides agree.

    history.sqlite   snapshots/   devices/   metrics.jsonl

Without a folder the same parts live in memory. Forgetting branches off a new trajectory beside the old one, without the
leavers, and only then gives the old one up: nothing has to be erased from the new one, for it never held it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.device.log import LogStore, MemoryStore, PackedStore, SqliteStore
from fedforget.device.log.codec import Codec
from fedforget.device.log.device_log import DeviceLog
from fedforget.errors import RunError, RunWarning
from fedforget.files import make_folder
from fedforget.randomness import UserId, user_key
from fedforget.server.factors import FactorsFolder
from fedforget.server.history import History, RoundRecord
from fedforget.server.metrics import MetricsFile
from fedforget.server.state import ServerState
from fedforget.settings import Settings


class Trajectory:
    """The server's history, the devices' log and the metrics of one trajectory.

    On a network the devices keep their logs themselves: there is none here.
    """

    def __init__(self, folder: Path | None, history: History, log: DeviceLog | None) -> None:
        self.folder = folder
        self.history = history
        self.log = log
        self.metrics = MetricsFile(None if folder is None else folder / "metrics.jsonl")

    @classmethod
    def open(cls, folder: Path | None, settings: Settings) -> Trajectory:
        """Take up the trajectory in a folder, or begin one there."""
        model = settings.model
        if folder is not None:
            make_folder(folder)
        history = History(folder, model.dense_layout, settings.protocol.snapshot_every)
        if settings.engine != "simulation":
            return cls(folder, history, None)
        codec = Codec(settings.log, settings.id, model.update_layout, model.dim, model.private_layout.size)
        return cls(folder, history, DeviceLog(settings.log, codec, _store(folder, settings), seed=settings.seed))

    @property
    def log_here(self) -> DeviceLog:
        """The log of devices that are simulated here."""
        assert self.log is not None, "the devices of this run keep their logs themselves"
        return self.log

    def branch(self, folder: Path | None, until: int, without: Sequence[UserId], request: str) -> Trajectory:
        """A new trajectory that begins as this one up to a round, with no trace of some users."""
        if folder is not None:
            make_folder(folder)
        keys = np.array([user_key(user) for user in without], np.uint64)
        devices = None if folder is None else folder / "devices"
        log = None if self.log is None else self.log.branch(devices, until, keys)
        other = Trajectory(folder, self.history.branch(folder, until, without, request), log)
        FactorsFolder(self.folder).hand_over(FactorsFolder(folder), until)
        for round_ in range(1, until + 1):  # from the history: the lines there are count those who leave
            other.note(other.history.record(round_))
        return other

    def copy_to(self, other: Trajectory) -> None:
        """Let an empty trajectory be as this one, its devices' log as its own settings keep it."""
        self.history.copy_to(other.history, self.history.last_round)
        self.log_here.copy_to(other.log_here)
        for line in self.metrics.read():
            other.metrics.append(line)

    def close(self) -> None:
        """Let go of the files."""
        self.history.close()
        if self.log is not None:
            self.log.close()

    def last_sound_round(self) -> int:
        """The last round that history, snapshots and device log all know; 0 for a run that has not begun."""
        finished, logged = self.history.last_round, self._logged()
        sound = 0
        if finished >= 0:
            usable = self.history.usable_rounds()
            sound = next((r for r in usable if self.history.last_active_round(r) <= logged), -1)
        if sound < 0:
            raise RunError(
                f"{self.folder} has no snapshot to go on from.", "Restore its snapshots folder, or start a new run."
            )
        if sound < finished or (finished < 0 < logged):
            warnings.warn(
                f"{self.folder} is taken up at round {sound}: its history ends at round {max(finished, 0)}, the log of "
                f"its devices at {logged}, and snapshots may be missing. Training computes the rest again.",
                RunWarning,
                stacklevel=2,
            )
        return sound

    def stands_at(self, round_: int) -> bool:
        """Whether history and log both end with this round."""
        if self.history.last_round != round_:
            return False
        return self.log is None or self.log.last_round() == self.history.last_active_round(round_)

    def _logged(self) -> int:
        """The last round of the devices' log, as far as it is known here."""
        return max(self.history.last_round, 0) if self.log is None else self.log.last_round()

    def tidy_up(self, round_: int, state: ServerState) -> None:
        """Let history, snapshots and metrics hold the rounds up to this one, and nothing that a crash left behind."""
        self.history.forget_after(round_)
        if self.history.last_round < 0:
            self.history.commit([RoundRecord(0, [], None, 0.0)], state)
        self.metrics.drop_after(round_)
        known = {line["round"] for line in self.metrics.read() if "loss" in line}
        for missing in range(1, round_ + 1):
            if missing not in known:
                self.note(self.history.record(missing))

    def note(self, record: RoundRecord) -> None:
        """Add a finished round's line to the metrics."""
        line: dict[str, Any] = {"round": record.round, "loss": record.loss, "seconds": round(record.seconds, 6)}
        self.metrics.append(line | {"clients": len(record.participants), "failures": len(record.failures)})


def _store(folder: Path | None, settings: Settings) -> LogStore:
    if folder is None:
        return MemoryStore()
    kind = PackedStore if settings.log.store == "packed" else SqliteStore
    return kind(folder / "devices", settings.id)
