"""Atomic file writes, and a lock against two writers of one run folder."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedforget.errors import BusyError, RunError, SystemLimitError

#: Files and folders that only their owner can read, whatever the umask.
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


#: Why the operating system refuses files that are not damaged, and what to do about it.
REFUSALS = {
    (errno.EMFILE, errno.ENFILE): "Close programs or allow more open files (ulimit -n); the same command continues.",
    (errno.EACCES, errno.EPERM): "Check who owns it and who may use it; the same command continues.",
    (errno.ENOMEM,): "Close programs; the same command continues.",
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): "Free some space. Files saved before are intact; the same command "
    "continues.",
}


def write_file(path: Path, data: bytes, *, private: bool = True) -> None:
    """Write a temporary file and rename it: a reader or a crash sees the old file or the new one, never a part.

    Only the owner can read it unless it is not ``private``.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)
        if private:
            make_private(temporary)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists."""
    with suppress(FileExistsError):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE)
        os.fchmod(handle, PRIVATE_FILE)
        os.close(handle)


def file_signature(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is replaced: its time, size and number; None if there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def most_open_files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # pragma: no cover  (no such limit on Windows)
        return 512
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit > 0 else 1 << 20  # below 0 there is none


def can_write(path: Path) -> bool:
    """Whether this process may write to a file or folder."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def link_file(source: Path, target: Path) -> None:
    """Link a file that never changes to a second path, or copy it if the file system has no hard links."""
    try:
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(source)
        except (OSError, NotImplementedError):
            make_private(target)
            shutil.copyfile(source, target)
    except OSError as error:
        raise cannot_write(target, error) from error


def make_folder(path: Path, *, private: bool = True) -> Path:
    """Create a folder and its parents, unless it exists; only the owner can read it unless it is not ``private``."""
    try:
        missing = list(itertools.takewhile(lambda folder: not folder.is_dir(), (path, *path.parents)))
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            if private:
                folder.chmod(PRIVATE_FOLDER)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


def remove_folder(path: Path) -> None:
    """Remove a folder with everything in it, also while other processes remove from it or still write to it."""
    for pause in (0.0, 0.05, 0.2, 1.0):
        time.sleep(pause)
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"Cannot remove {path}: {error.strerror}.", "Remove it, or open the run again later.") from error


def cannot_write(path: Path, error: Exception) -> RunError:
    """The error for a file that could not be written."""
    hint = "Free some space or choose another folder. Files saved before are intact; the same command continues."
    return refused(path, error, "write") or RunError(f"Cannot write {path}: {reason_of(error)}.", hint)


def refused(path: Path | str, error: Exception, verb: str = "use") -> SystemLimitError | None:
    """The error for a file that the operating system refuses to open, read or write; None for any other reason."""
    for numbers, hint in REFUSALS.items():
        if any(getattr(error, "errno", None) == number or os.strerror(number) in str(error) for number in numbers):
            return SystemLimitError(f"Cannot {verb} {path}: {reason_of(error)}.", hint)
    return None


def reason_of(error: Exception) -> str:
    """The reason of an error, without the file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


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
        handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, PRIVATE_FILE)
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
