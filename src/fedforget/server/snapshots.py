"""Snapshots: the server's state after each round."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fedforget.errors import RunError
from fedforget.models import Layout
from fedforget.runtime.files import make_folder, refused, write_file
from fedforget.server.state import ServerState


class Snapshots:
    """``snapshots/NNNNNN.safetensors`` in the folder of a trajectory, or in memory when there is no folder."""

    def __init__(self, folder: Path | None, layout: Layout) -> None:
        self.folder = None if folder is None else make_folder(folder / "snapshots")
        self.layout = layout
        self._in_memory: dict[int, ServerState] = {}

    def save(self, round_: int, state: ServerState) -> None:
        if self.folder is None:
            self._in_memory[round_] = state
        else:
            write_file(self.path(round_), state.to_bytes())

    def load(self, round_: int, checksum: str) -> ServerState:
        """The state after a round, checked against its checksum."""
        if self.folder is None:
            return self._in_memory[round_]
        path = self.path(round_)
        try:
            state = ServerState.from_file(path, self.layout)
            if state.checksum != checksum:
                raise ValueError("its content does not match the checksum in history.sqlite")
        except Exception as error:  # safetensors raises its own type for a damaged file
            raise refused(path, error) or RunError(
                f"The snapshot {path} is damaged: {error}.",
                "Remove that file and open the run again: it continues from the snapshot before it.",
            ) from error
        return state

    def stored(self, rounds: Iterable[int]) -> list[int]:
        """Those of the given rounds that have a snapshot."""
        if self.folder is None:
            return [round_ for round_ in rounds if round_ in self._in_memory]
        try:
            names = {entry.name for entry in os.scandir(self.folder)}
        except FileNotFoundError as error:
            raise RunError(
                f"{self.folder} is gone. Another process has carried out an erasure.", "Open the run again."
            ) from error
        return [round_ for round_ in rounds if self.path(round_).name in names]

    def remove(self, round_: int) -> None:
        """Remove the snapshot of a round, if there is one."""
        if self.folder is None:
            self._in_memory.pop(round_, None)
        else:
            self.path(round_).unlink(missing_ok=True)

    def keep_only(self, rounds: Iterable[int]) -> None:
        """Remove the snapshots of all other rounds, and partly written files."""
        if self.folder is None:
            self._in_memory = {round_: self._in_memory[round_] for round_ in self.stored(rounds)}
            return
        paths = {self.path(round_) for round_ in rounds}
        for path in self.folder.iterdir():
            if path not in paths:
                path.unlink()

    def path(self, round_: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{round_:06d}.safetensors"
