"""Run: a folder with a configuration and the trajectory that it names.

    config.toml   trajectory-N/   receipts/   request.json   lock
    queue/                               requests that wait
    registry.sqlite   invitation.json    on a network only

``config.toml`` names the trajectory in service; replacing that one file commits an erasure. Any other trajectory folder
is either being built (``request.json`` names it) or was left behind by a crash. Opening a run changes nothing, except
that an erasure already committed is finished.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from fedforget.errors import BusyError, RunError
from fedforget.runtime.fallbacks import Collected, Fallback, collect
from fedforget.runtime.files import can_write, file_signature, make_folder, only_writer, remove_folder, write_file
from fedforget.server.config_file import read_config
from fedforget.server.erasure_queue import ErasureQueue
from fedforget.server.history import History
from fedforget.server.receipt import Receipt
from fedforget.server.request import ErasureRequest
from fedforget.server.run_config import RunConfig, comparable, digest_of, first_difference
from fedforget.server.trajectory import OpenDevices, Trajectory


class Run:
    """A run folder, which is created if needed; without a path everything is in memory.

    ``on_commit`` is called after the commit of an erasure, and then the request is removed from the ``queue``. If the
    process is killed before that, both are done later.
    """

    def __init__(
        self,
        path: Path | None,
        config: RunConfig,
        open_devices: OpenDevices | None = None,
        on_commit: Callable[[ErasureRequest], None] | None = None,
    ) -> None:
        self.path = path
        self.queue = None if path is None else ErasureQueue(path)
        self._open_devices = open_devices
        self._on_commit = on_commit
        self._busy = False
        self._receipts_written = False
        self._seen: tuple[int, int, int] | None = None
        self._fallbacks: Collected = {}
        self.config = config if path is None else _prepare(path, config)
        self._finish_if_committed()
        self.current = self._open(self.config.trajectory)
        self.check_current()
        self._check_config()

    def close(self) -> None:
        self.current.close()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the run, against other processes and calls from within a callback."""
        if self._busy:
            raise RunError("This federation is training or forgetting right now.", "Wait until that call has returned.")
        with nullcontext() if self.path is None else only_writer(self.path):
            self.check_current()
            self._finish_erasure()
            if not self._receipts_written:
                with suppress(RunError, OSError):
                    self.write_receipts()
            if self.path is not None and self.current.history.config_digest is None:
                self.current.history.set_config_digest(digest_of(self.config))
            self._busy = True
            try:
                with self.noting():
                    yield
            finally:
                self._busy = False
                with suppress(RunError):  # kept for the next time
                    self.store_fallbacks()

    def noting(self) -> AbstractContextManager[None]:
        """Keep the fallbacks that are announced, until ``store_fallbacks``."""
        return collect(self._fallbacks)

    def fallbacks(self) -> list[Fallback]:
        """The fallbacks in the history, and those since that are not stored yet."""
        known = self.current.history.fallbacks.all()
        seen = {(each.file, each.text) for each in known}
        return known + [each for each in self._noted() if (each.file, each.text) not in seen]

    def store_fallbacks(self, history: History | None = None) -> None:
        """Store the fallbacks that were kept in a history, by default that of the trajectory in service."""
        if self._fallbacks:
            (history or self.current.history).fallbacks.add(self._noted())
            self._fallbacks.clear()

    def _noted(self) -> list[Fallback]:
        round_ = max(self.current.history.last_round, 0)
        root = str(self.path or Path())
        return [
            Fallback(round_, os.path.relpath(file, root) if file else "", text, len(keys))
            for (file, text), keys in self._fallbacks.items()
        ]

    def set_config(self, config: RunConfig) -> None:
        """Store another configuration; the caller holds the lock."""
        if self.path is not None:
            config.save(self.path / "config.toml")
        self.config = config

    def waiting(self) -> ErasureRequest | None:
        """The erasure that was begun and not finished, if any."""
        return None if self.path is None else ErasureRequest.load(self.path / "request.json")

    def begin_erasure(self, request: ErasureRequest, start: int) -> Trajectory:
        """The new trajectory of a request: from an interrupted attempt, or a new branch after round ``start``."""
        folder = self._folder(request.trajectory)
        if folder is None:
            return self.current.branch(None, start, request)
        assert self.path is not None
        request.save(self.path / "request.json")
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            try:
                self.current.branch(part, start, request).close()
            except RunError:
                self.abandon_erasure()
                raise
            part.rename(folder)
        return self._open(request.trajectory)

    def commit_erasure(self, new: Trajectory, config: RunConfig, receipt: Receipt) -> None:
        """Put the new trajectory in service, then remove the old one and everything about the forgotten users."""
        new.history.add_receipt(receipt.request, receipt.to_json())
        self.store_fallbacks(new.history)
        new.history.set_config_digest(digest_of(config))
        self.set_config(config)
        old, self.current = self.current, new
        old.close()
        self._finish_erasure()

    def abandon_erasure(self) -> None:
        """Remove an erasure that was begun; the model in service stays."""
        if self.path is not None:
            self._clear()

    def write_receipts(self) -> None:
        """Write the receipts in the history to ``receipts/``, one file each, for people; missing ones again."""
        receipts = {} if self.path is None else self.current.history.receipts()
        folder = make_folder(self.path / "receipts") if self.path is not None and receipts else Path()
        for request, text in receipts.items():
            file = folder / f"{request}.json"
            if not file.exists() or file.read_bytes() != text.encode():
                write_file(file, text.encode())
        self._receipts_written = True

    def _finish_if_committed(self) -> None:
        """Finish an erasure that was killed after its commit, unless another process does."""
        if self._unfinished():
            assert self.path is not None
            if not can_write(self.path):  # reading works; the next process that can write finishes it
                return
            with suppress(BusyError), only_writer(self.path):
                self.check_current()
                self.current = self._open(self.config.trajectory)
                self._finish_erasure()
                self.current.close()

    def _finish_erasure(self) -> None:
        """Finish an erasure that is committed; the caller holds the lock.

        The old trajectory goes first and depends on nothing else. The request stays until all of it is done.
        """
        if self._unfinished():
            self._remove_other_trajectories()
            request = None
            with suppress(RunError):  # a request that cannot be read is removed
                request = self.waiting()
            if self._on_commit is not None and request is not None:
                self._on_commit(request)
            if self.queue is not None and request is not None:
                self.queue.remove(request.id)
            self._receipts_written = False
            try:
                self.write_receipts()
            finally:
                self._clear()

    def _unfinished(self) -> bool:
        """Whether an erasure is committed, but the old trajectory or its request is still there."""
        if self.path is None:
            return False
        if any(_number(folder) < self.config.trajectory for folder in self._other_trajectories()):
            return True
        request = self.waiting()
        return bool(self._other_trajectories()) if request is None else request.trajectory <= self.config.trajectory

    def _remove_other_trajectories(self) -> None:
        for folder in self._other_trajectories():
            remove_folder(folder)

    def _clear(self) -> None:
        """Remove every trajectory but the one in service, the request, and partly written files."""
        assert self.path is not None
        self._remove_other_trajectories()
        own = (self.path / f".{name}.part" for name in ("config.toml", "request.json"))
        for file in (*own, *self.path.glob("receipts/.*.part"), self.path / "request.json"):
            file.unlink(missing_ok=True)

    def check_current(self) -> None:
        """Raise an error if another process has forgotten users since this run was opened.

        The configuration is only read if its file has changed.
        """
        if self.path is None:
            return
        file = self.path / "config.toml"
        signature = file_signature(file)
        if signature is None or signature != self._seen:
            if read_config(file)["trajectory"] != self.config.trajectory:
                raise RunError(
                    f"Users of {self.path} were forgotten after this federation was opened.",
                    "Open it again: Federation.open(path).",
                )
            self._seen = signature

    def _check_config(self) -> None:
        """Raise an error if the configuration is not the one that the history belongs to."""
        stored = None if self.path is None else self.current.history.config_digest
        if stored is not None and stored != digest_of(self.config):
            raise RunError(
                f"{self.path}/config.toml was changed: it does not match the history of the run.",
                "Restore it from a copy, or start a new run with other settings in another folder.",
            )

    def _open(self, trajectory: int) -> Trajectory:
        return Trajectory.open(self._folder(trajectory), self.config, self._open_devices)

    def _other_trajectories(self) -> list[Path]:
        assert self.path is not None
        current = self._folder(self.config.trajectory)
        return [folder for folder in self.path.glob("trajectory-*") if folder != current]

    def _folder(self, trajectory: int) -> Path | None:
        return None if self.path is None else self.path / f"trajectory-{trajectory}"


def _number(folder: Path) -> int:
    """The number of a trajectory's folder; that of an unfinished copy is higher than all."""
    number = folder.name.removeprefix("trajectory-")
    return int(number) if number.isdecimal() else sys.maxsize


def _prepare(path: Path, config: RunConfig) -> RunConfig:
    """Create a run folder, or check that an existing one has this configuration; returned with its id."""
    file = path / "config.toml"
    if file.exists():
        found = RunConfig.load(file)
        if difference := first_difference(comparable(found.to_dict()), comparable(config.to_dict())):
            raise RunError(
                f"{path} holds a run with other settings: {difference}.",
                "Use the same settings to continue it, or another folder for a new run.",
            )
        return replace(config, id=found.id, trajectory=found.trajectory)
    if path.is_dir() and any(entry.suffix != ".part" for entry in path.iterdir()):
        raise RunError(f"{path} has files in it but is not a run folder.", "Choose an empty or new folder.")
    make_folder(path)
    config.save(file)
    return config
