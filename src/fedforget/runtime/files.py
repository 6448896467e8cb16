"""Atomic file writes, and a lock against two writers of one run folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedforget.errors import BusyError, RunError


def write_file(path: Path, data: bytes) -> None:
    """Write a temporary file and rename it: a reader or a crash sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def link_file(source: Path, target: Path) -> None:
    """Link a file that never changes to a second path, or copy it if the file system has no hard links."""
    try:
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(source)
        except (OSError, NotImplementedError):
            shutil.copyfile(source, target)
    except OSError as error:
        raise cannot_write(target, error) from error


def make_folder(path: Path) -> Path:
    """Create a folder and its parents, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


def cannot_write(path: Path, error: Exception) -> RunError:
    """The error for a file that could not be written."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return RunError(
        f"Cannot write {path}: {reason}.",
        "Free some space or choose another folder. Files saved before are intact; the same command continues.",
    )


@contextmanager
def only_writer(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the folder's lock, so that no second process trains or forgets in it. A killed process releases it.

    If another process holds it, wait for it or raise ``BusyError``.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover  (no such lock on Windows)
        yield
        return
    try:
        handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise cannot_write(folder / "lock", error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise BusyError(
                f"Another process is writing to {folder}.", "Wait until it is done, or stop it first."
            ) from error
        yield
    finally:
        os.close(handle)
