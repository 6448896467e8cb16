"""Heads of binary files with a checksum, and the errors for files whose head is not right."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from fedforget.errors import RunError

CRC = struct.Struct("<II")


def sealed(head: bytes | bytearray) -> bytes:
    """A head with its checksum."""
    return b"".join([head, CRC.pack(zlib.crc32(head), 0)])


def is_whole(head: bytes | bytearray) -> bool:
    """Whether these bytes are a head and its checksum."""
    return len(head) > CRC.size and sealed(head[: -CRC.size]) == head


def unreadable(path: Path, reason: str) -> RunError:
    """The error for a file that cannot be read."""
    return RunError(
        f"Cannot read {path}: {reason}.",
        "Put back a copy of it, or delete it: the devices then go on without what it held.",
    )


def foreign(path: Path) -> RunError:
    """The error for a file that belongs to another federation."""
    return RunError(f"{path} is a log of another run.", "Put back this run's own file, or delete it.")
