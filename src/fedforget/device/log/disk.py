"""What the stores on disk share: file heads with a checksum, errors, and the folder of a branch."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from fedforget.errors import RunError
from fedforget.runtime.files import refused

CRC = struct.Struct("<II")


def sealed(head: bytes | bytearray) -> bytes:
    """A head followed by its checksum."""
    return b"".join([head, CRC.pack(zlib.crc32(head), 0)])


def is_whole(head: bytes | bytearray) -> bool:
    """Whether these bytes are a head followed by its checksum."""
    return len(head) > CRC.size and sealed(head[: -CRC.size]) == head


def unreadable(path: Path, reason: str | OSError) -> RunError:
    """The error for a file that cannot be read."""
    found = None if isinstance(reason, str) else refused(path, reason)
    return found or RunError(
        f"Cannot read {path}: {reason if isinstance(reason, str) else reason.strerror}.",
        "Restore it from a copy, or delete it: the devices then continue without its content.",
    )


def foreign(path: Path) -> RunError:
    """The error for a file that belongs to another federation."""
    return RunError(f"{path} is a log of another run.", "Restore the file of this run, or delete it.")


def new_folder(folder: Path | None) -> Path:
    """Check that a log can branch into this folder."""
    if folder is None:
        raise ValueError("A log on disk can only branch into a folder; give one.")
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty.", "A log branches into a new folder: remove it, or choose another.")
    return folder
