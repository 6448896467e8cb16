"""Removing users from a device, and the number of the last order to do so, which makes earlier ones out of date."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

from fedforget.device.log.user_files import DamagedError, UserFiles
from fedforget.device.member import Member, user_of
from fedforget.device.model_file import ModelFile
from fedforget.runtime.fallbacks import announce
from fedforget.runtime.files import write_file
from fedforget.runtime.randomness import UserId

#: The file with the number of the last order to wipe, and its CRC-32.
WIPED = "wiped"


def remove_users(files: UserFiles, chosen: Callable[[UserId], bool]) -> tuple[int, bool]:
    """Remove everything about some users; returns their number, and whether the files of all users can be read."""
    users, all_readable = readable_users(files)
    removed = [user for user in users if chosen(user)]
    for user in removed:
        Member(files, user).wipe()
    if not files.users():  # nobody on this device is in the federation any more
        ModelFile(files.folder).remove()
    return len(removed), all_readable


def readable_users(files: UserFiles) -> tuple[list[UserId], bool]:
    """The users whose files can be read, and whether all files can be read."""
    users, all_readable = [], True
    for key in files.users():
        try:
            users.append(user_of(files, key))
        except DamagedError:
            all_readable = False
    return [user for user in users if user is not None], all_readable


def last_wipe(folder: Path) -> int:
    """The number of the last order to wipe; 0, with a warning, if the file is damaged. It holds NUMBER CHECK."""
    path = folder / WIPED
    content = path.read_bytes() if path.exists() else b"0"
    number = content.partition(b" ")[0]
    if number.isdigit() and content in (number, _with_check(int(number))):  # files of earlier versions have no check
        return int(number)
    announce(f"{path} is damaged: orders to wipe are carried out, also repeated ones.", path, "it is damaged")
    return 0


def keep_last_wipe(folder: Path, number: int) -> None:
    """Store the number of an order to wipe."""
    write_file(folder / WIPED, _with_check(number))


def _with_check(number: int) -> bytes:
    return b"%d %08x" % (number, zlib.crc32(str(number).encode()))
