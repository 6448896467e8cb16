"""Downloading a named data set into the data folder."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from fedforget.data.catalogue import CATALOGUE, Form, data_folder
from fedforget.data.sources import Progress, Say, SourceError
from fedforget.errors import DataError, unknown_choice


def to_stderr(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr)


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    force: bool = False,
    say: Say = to_stderr,
    progress: Progress = lambda received, expected: None,
) -> Path:
    """Download a named set, unless the folder has a valid copy, and return the path of its (first) file.

    The sources are tried in turn. A file is written under a temporary name, checked and then renamed, so that an
    incomplete or wrong file never has the name of the set. ``force`` replaces an existing copy.
    """
    if name == "synthetic":
        raise DataError("synthetic is generated, not downloaded.", 'Load it with fedforget.load("synthetic").')
    if name not in CATALOGUE:
        raise unknown_choice("data set", name, list(CATALOGUE))
    named_set, place = CATALOGUE[name], data_folder(folder)
    existing = named_set.find(place)
    if existing is not None and not force:
        named_set.open(existing, place)
        return place / existing.files[0]
    if not named_set.sources:
        raise DataError(f"{name} cannot be downloaded without a login.", named_set.remedy(place))
    form = named_set.forms[0]
    target = place / form.files[0]
    reasons = []
    for source in named_set.sources:
        try:
            _store(source.rows(say, progress), target, form)
        except SourceError as error:
            reasons.append(str(error))
        else:
            say(f"{name} is at {target}")
            return target
    raise DataError(
        f"{name} could not be downloaded: {'; '.join(reasons)}.",
        f"Check the connection and try again, or copy {target.name} to {target} yourself.",
    )


def _store(content: bytes, target: Path, form: Form) -> None:
    """Write the file under a temporary name, check its content, then rename it."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        try:
            reason = form.mismatch(form.read(part), part)
        except DataError as error:
            reason = error.problem
        if reason:
            raise SourceError(f"the download is not the published set: {reason}")
        part.replace(target)
    except OSError as error:
        hint = "Choose another folder with --folder or FEDFORGET_DATA."
        raise DataError(f"{target} cannot be written: {error.strerror or error}.", hint) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
