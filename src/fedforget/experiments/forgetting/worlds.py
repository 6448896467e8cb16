"""Worlds on disk: one file each, written when it is finished, so that an audit continues where it stopped.

``settings.json`` describes the audit. ``worlds/CASE-NNNN.safetensors`` has the signals of each method in one world, the
arrays that are compared between worlds, and in its metadata the figures of that world as JSON.
"""

from __future__ import annotations

import gc
import hashlib
import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from fedforget.errors import RunError
from fedforget.experiments.forgetting.settings import AuditSettings, World
from fedforget.experiments.forgetting.world import train_world
from fedforget.runtime.files import make_folder, write_file
from fedforget.runtime.worker_process import end_with_parent
from fedforget.runtime.workers import available_cores

#: Called with the number of finished worlds and of all.
OnWorld = Callable[[int, int], None]
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """The result of a world."""

    arrays: dict[str, NDArray[Any]]
    figures: dict[str, Any]


class Worlds:
    """The worlds of an audit in a folder, which is created if needed."""

    def __init__(self, folder: Path, settings: AuditSettings) -> None:
        self.settings = settings
        self.folder = make_folder(folder / "worlds", private=False)
        self._check(folder / "settings.json")

    def missing(self) -> list[World]:
        """The worlds that are not finished."""
        return [world for world in self.settings.all_worlds if not self._is_finished(world)]

    def train(self, on_world: OnWorld, workers: int | None = None) -> None:
        """Train the missing worlds, by default one on each core at a time."""
        missing, total = self.missing(), len(self.settings.all_worlds)
        on_world(total - len(missing), total)
        count = min(workers or available_cores(), len(missing))
        if count <= 1:
            for done, world in enumerate(missing, start=total - len(missing) + 1):
                self.train_one(world)
                on_world(done, total)
        else:
            self._train_in_processes(missing, count, on_world, total)

    def train_one(self, world: World) -> None:
        """Train a world and store it."""
        arrays, figures = train_world(self.settings, world)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        about = {"audit": self.settings.digest, "world": world.name, "figures": json.dumps(figures)}
        data = save(contiguous, metadata={**about, "checksum": _checksum(contiguous, about)})
        write_file(self._path(world), data, private=False)
        gc.collect()  # federations refer to themselves, and their logs take hundreds of megabytes

    def load(self, world: World) -> Outcome:
        """The result of a finished world."""
        path, hint = self._path(world), "Remove that file; the same command trains the world again."
        try:
            with safe_open(path, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                about = dict(file.metadata())
                checksum, figures = about.pop("checksum"), json.loads(about["figures"])
        except Exception as error:  # safetensors raises its own type for a damaged file
            raise RunError(f"{path} cannot be read: {error}.", hint) from error
        if checksum != _checksum(arrays, about):
            raise RunError(f"{path} is damaged: its checksum differs.", hint)
        if (about["audit"], about["world"]) != (self.settings.digest, world.name):
            raise RunError(f"{path} is a world of another audit.", hint)
        return Outcome(arrays, figures)

    def _is_finished(self, world: World) -> bool:
        """Whether a world is stored; one of another program or audit is an error before anything is trained."""
        if not self._path(world).exists():
            return False
        self.load(world)
        return True

    def _train_in_processes(self, missing: Sequence[World], count: int, on_world: OnWorld, total: int) -> None:
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start, (self,))
        try:
            running: set[Future[None]] = {pool.submit(_train_here, world) for world in missing}
            while running:
                done, running = wait(running, timeout=POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                on_world(total - len(running), total)
        except BrokenProcessPool as error:
            hint = "It may have run out of memory: try fewer workers. The same command resumes the work."
            raise RunError("A worker process ended unexpectedly.", hint) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _path(self, world: World) -> Path:
        return self.folder / f"{world.name}.safetensors"

    def _check(self, path: Path) -> None:
        """Store the settings, or refuse a folder with an audit of other settings."""
        described = {"digest": self.settings.digest, **self.settings.describe()}
        if not path.exists():
            write_file(path, json.dumps(described, indent=2).encode(), private=False)
            return
        try:
            found = dict(json.loads(path.read_text())).get("digest")
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path} cannot be read: {error}.", "Choose another folder.") from error
        if found != self.settings.digest:
            hint = "Choose another folder, or remove this one. More worlds and cases may be added, nothing else."
            raise RunError(f"{path.parent} has an audit with other settings or data.", hint)


def _checksum(arrays: dict[str, NDArray[Any]], about: dict[str, str]) -> str:
    """A digest of the arrays and of what is stored about them."""
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=8)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


_here: Worlds | None = None


def _start(worlds: Worlds) -> None:
    """Start a worker process."""
    global _here
    _here = worlds
    end_with_parent()


def _train_here(world: World) -> None:
    assert _here is not None
    _here.train_one(world)
