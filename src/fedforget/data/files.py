"""Reading files, with errors that name the file and the reason."""

from __future__ import annotations

from pathlib import Path

from fedforget.errors import DataError


def content_of(path: str | Path) -> bytes:
    """The bytes of a file that is not empty."""
    place = Path(path).expanduser()
    if place.is_dir():
        raise DataError(f"{path} is a folder.", "Name a file in it.")
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no file {path}.", f"The current folder is {Path.cwd()}.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}.", "Check the path and its permissions.") from None
    if not content.strip():
        raise DataError(f"{path} is empty.", "Check that it was written or copied completely.")
    return content


def text_of(path: str | Path) -> str:
    """The text of a UTF-8 file, without a byte order mark."""
    content = content_of(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"Line {line} of {path} is not UTF-8 text (byte 0x{content[error.start]:02x}).",
            f"Save the file as UTF-8, for example with: iconv -f latin1 -t utf-8 {path}",
        ) from None


def first_line_of(path: str | Path) -> str:
    """The first line of a UTF-8 file that is not blank."""
    return text_of(path).lstrip("\r\n").partition("\n")[0].rstrip("\r")


def lines_of(path: str | Path) -> list[str]:
    """The lines of a UTF-8 file. Only a line feed, with or without a carriage return, ends one."""
    return [line.removesuffix("\r") for line in text_of(path).removesuffix("\n").split("\n")]
