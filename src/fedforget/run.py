"""Run: the files of a federation, and the last round on which they agree.

    config.toml   history.sqlite   snapshots/   devices/log.sqlite   metrics.jsonl   lock

Without a folder the same parts live in memory. Reading a run writes nothing, so others may read or train at the same
time; what a crash left behind is dropped by ``tidy_up``, under the lock, before training goes on.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fedforget.device.log import DeviceLog, MemoryLog, SqliteLog
from fedforget.errors import RunError, RunWarning
from fedforget.files import make_folder, only_writer
from fedforget.models import Public
from fedforget.server.history import History, RoundRecord
from fedforget.server.metrics import MetricsFile
from fedforget.settings import Settings, comparable, first_difference, read_config


class Run:
    """The parts of a run with these settings, in a folder that is made, or found to be a run with the same settings."""

    def __init__(self, path: Path | None, settings: Settings) -> None:
        self.path = path
        if path is not None:
            _prepare(path, settings)
        self.history = History(path, settings.model.dense_layout, settings.protocol.snapshot_every)
        self.log: DeviceLog = MemoryLog() if path is None else SqliteLog(path / "devices" / "log.sqlite")
        self.metrics = MetricsFile(None if path is None else path / "metrics.jsonl")

    def close(self) -> None:
        """Let go of the files."""
        self.history.close()
        self.log.close()

    def locked(self) -> AbstractContextManager[None]:
        """Hold the run against other writers."""
        return nullcontext() if self.path is None else only_writer(self.path)

    def last_sound_round(self) -> int:
        """The last round that history, snapshots and device log all know; 0 for a run that has not begun."""
        finished, logged = self.history.last_round, self.log.last_round()
        sound = 0
        if finished >= 0:
            usable = self.history.usable_rounds()
            sound = next((r for r in usable if self.history.last_active_round(r) <= logged), -1)
        if sound < 0:
            raise RunError(
                f"{self.path} has no snapshot to go on from.", "Restore its snapshots folder, or start a new run."
            )
        if sound < finished or (finished < 0 < logged):
            warnings.warn(
                f"{self.path} is taken up at round {sound}: its history ends at round {max(finished, 0)}, the log of "
                f"its devices at {logged}, and snapshots may be missing. Training computes the rest again.",
                RunWarning,
                stacklevel=2,
            )
        return sound

    def stands_at(self, round_: int) -> bool:
        """Whether history and log both end with this round."""
        active = self.history.last_active_round(round_)
        return self.history.last_round == round_ and self.log.last_round() == active

    def tidy_up(self, round_: int, public: Public) -> None:
        """Let history, snapshots and metrics hold the rounds up to this one, and nothing that a crash left behind."""
        self.history.forget_after(round_)
        if self.history.last_round < 0:
            self.history.commit(RoundRecord(0, [], None, 0.0), public)
        self.metrics.drop_after(round_)
        known = {line["round"] for line in self.metrics.read() if "loss" in line}
        for missing in range(1, round_ + 1):
            if missing not in known:
                self.note(self.history.record(missing))

    def note(self, record: RoundRecord) -> None:
        """Add a finished round's line to the metrics."""
        line: dict[str, Any] = {"round": record.round, "loss": record.loss, "seconds": round(record.seconds, 6)}
        self.metrics.append(line | {"clients": len(record.participants), "failures": len(record.failures)})


def _prepare(path: Path, settings: Settings) -> None:
    """Make a new run folder, or check that the one there was made with the same settings."""
    config = path / "config.toml"
    if config.exists():
        if difference := first_difference(comparable(read_config(config)), comparable(settings.to_dict())):
            raise RunError(
                f"{path} holds a run with other settings: {difference}.",
                "Use the same settings to continue it, or another folder for a new run.",
            )
        return
    if path.is_dir() and any(file.suffix != ".part" for file in path.iterdir()):
        raise RunError(f"{path} has files in it but is not a run folder.", "Choose an empty or a new folder.")
    make_folder(path)
    settings.save(config)
