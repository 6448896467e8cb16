"""Run: a folder with a configuration and the trajectory that it names.

    config.toml   trajectory-N/   receipts/   request.json   lock
    registry.sqlite   invitation.json   queue/     on a network only

``config.toml`` says which trajectory is in service; replacing that one file is what commits an erasure. Other
trajectory folders are one that is being built (``request.json`` names it) or what a crash left of one given up. Opening
a run changes nothing of it, except that an erasure already committed is brought to its end.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from fedforget.errors import BusyError, RunError
from fedforget.files import make_folder, only_writer, write_file
from fedforget.request import Request
from fedforget.server.unlearning.receipt import Receipt
from fedforget.settings import Settings, comparable, first_difference, read_config
from fedforget.trajectory import Trajectory


class Run:
    """The run with these settings in a folder that is made, or found to be a run with the same settings.

    ``let_go`` is called when an erasure has been committed, and again if a kill came between that and its end.
    """

    def __init__(self, path: Path | None, settings: Settings, let_go: Callable[[Request], None] | None = None) -> None:
        self.path = path
        self._let_go = let_go
        self._busy = False
        self.settings = settings if path is None else _prepare(path, settings)
        if path is not None:
            self._finish_committed()
        self.current = Trajectory.open(self._folder(self.settings.trajectory), self.settings)
        self._refuse_if_left_behind()

    def close(self) -> None:
        """Let go of the files."""
        self.current.close()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run against other writers, among them whoever is called back in between."""
        if self._busy:
            raise RunError("This federation is training or forgetting right now.", "Wait until that call has returned.")
        with nullcontext() if self.path is None else only_writer(self.path):
            self._refuse_if_left_behind()
            self._complete()
            self._busy = True
            try:
                yield
            finally:
                self._busy = False

    def waiting(self) -> Request | None:
        """The erasure that was begun and not finished, if any."""
        return None if self.path is None else Request.load(self.path / "request.json")

    def begin(self, request: Request, start: int) -> Trajectory:
        """The new trajectory of a request: the one that was begun, or a new branch after round ``start``."""
        folder = self._folder(request.trajectory)
        if folder is None:
            return self.current.branch(None, start, request.users, request.id)
        assert self.path is not None
        request.save(self.path / "request.json")
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            try:
                self.current.branch(part, start, request.users, request.id).close()
            except RunError:
                self.abandon()
                raise
            part.rename(folder)
        return Trajectory.open(folder, self.settings)

    def commit(self, new: Trajectory, settings: Settings, receipt: Receipt) -> None:
        """Put the new trajectory in service, then give up the old one and all that still knows of the leavers."""
        new.history.add_receipt(receipt.request, receipt.to_json())
        if self.path is not None:
            settings.save(self.path / "config.toml")
        self.settings, old, self.current = settings, self.current, new
        old.close()
        if self.path is not None:
            self._complete()

    def abandon(self) -> None:
        """Give up an erasure that was begun; the model in service stays as it is."""
        if self.path is not None:
            self._clear()

    def _finish_committed(self) -> None:
        """After a kill between commit and purge: what still knows of the leavers goes now, unless someone is at it."""
        assert self.path is not None
        if self._committed() or (self.waiting() is None and self._given_up()):
            with suppress(BusyError), only_writer(self.path):
                self._refuse_if_left_behind()
                self.current = Trajectory.open(self._folder(self.settings.trajectory), self.settings)
                self._complete()
                self.current.close()

    def _committed(self) -> bool:
        """Whether the request that waits is one that was carried out, but for the purge."""
        request = self.waiting()
        return request is not None and request.trajectory <= self.settings.trajectory

    def _complete(self) -> None:
        """Under the lock: bring an erasure that is committed to its end."""
        if self._committed() or (self.path is not None and self.waiting() is None and self._given_up()):
            if self._let_go is not None and (request := self.waiting()) is not None:
                self._let_go(request)
            self.write_receipts()
            self._clear()

    def write_receipts(self) -> None:
        """Write the receipts of the history out as files, for people."""
        assert self.path is not None
        folder = make_folder(self.path / "receipts")
        for text in self.current.history.receipts():
            file = folder / f"{Receipt.from_json(text).request}.json"
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                write_file(file, text.encode())

    def _clear(self) -> None:
        """Remove every trajectory but the one in service, the request, and what a kill left half written."""
        assert self.path is not None
        for folder in self._given_up():
            shutil.rmtree(folder)
        for file in (*self.path.glob(".*.part"), *self.path.glob("receipts/.*.part"), self.path / "request.json"):
            file.unlink(missing_ok=True)

    def _refuse_if_left_behind(self) -> None:
        """A federation that was open while another process forgot someone still knows the leavers: it may not write."""
        if self.path is not None and read_config(self.path / "config.toml")["trajectory"] != self.settings.trajectory:
            raise RunError(
                f"Users of {self.path} were forgotten after this federation was opened.",
                "Open it again: Federation.open(path).",
            )

    def _given_up(self) -> list[Path]:
        assert self.path is not None
        current = self._folder(self.settings.trajectory)
        return [folder for folder in self.path.glob("trajectory-*") if folder != current]

    def _folder(self, trajectory: int) -> Path | None:
        return None if self.path is None else self.path / f"trajectory-{trajectory}"


def _prepare(path: Path, settings: Settings) -> Settings:
    """Make a new run folder, or check that the one there has the same settings; the settings as they are there."""
    config = path / "config.toml"
    if config.exists():
        found = read_config(config)
        if difference := first_difference(comparable(found), comparable(settings.to_dict())):
            raise RunError(
                f"{path} holds a run with other settings: {difference}.",
                "Use the same settings to continue it, or another folder for a new run.",
            )
        return settings.at(found["id"], found["trajectory"])
    if path.is_dir() and any(file.suffix != ".part" for file in path.iterdir()):
        raise RunError(f"{path} has files in it but is not a run folder.", "Choose an empty or a new folder.")
    make_folder(path)
    settings.save(config)
    return settings
