"""Fetching a named data set into the data folder, once."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from fedforget.data.catalogue import Form, NamedSet, data_folder, named_set
from fedforget.data.sources import Progress, Say, SourceError
from fedforget.errors import DataError


def to_stderr(line: str) -> None:
    """Say a line to the person at the terminal, leaving the output to programs."""
    print(line, file=sys.stderr)


def unshown(received: int, expected: int | None) -> None:
    """Progress that no one watches."""


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    force: bool = False,
    say: Say = to_stderr,
    progress: Progress = unshown,
) -> Path:
    """Fetch a named set, unless a good copy is there already, and return the path of its (first) file.

    The sources are asked in turn. What one gives is written beside its place, checked, and only then renamed
    into it, so that a half-written or wrong file never carries the name of the set. ``force`` fetches anew.
    """
    if name == "synthetic":
        raise DataError("synthetic is made, not fetched.", 'Load it as it is: fedforget.load("synthetic").')
    chosen, place = named_set(name), data_folder(folder)
    found = chosen.find(place)
    if found is not None and not force:
        chosen.open(found, place)
        return place / found.files[0]
    if not chosen.sources:
        raise DataError(f"{name} cannot be fetched without a login.", chosen.remedy(place))
    return _fetched(chosen, place, say, progress)


def _fetched(chosen: NamedSet, folder: Path, say: Say, progress: Progress) -> Path:
    form = chosen.forms[0]
    target = folder / form.files[0]
    reasons = []
    for source in chosen.sources:
        try:
            _store(source.rows(say, progress), target, form)
        except SourceError as error:
            reasons.append(str(error))
        else:
            say(f"{chosen.name} is at {target}")
            return target
    raise DataError(
        f"{chosen.name} could not be fetched: {'; '.join(reasons)}.",
        f"Try again with a connection, or put a copy of {target.name} at {target} yourself.",
    )


def _store(content: bytes, target: Path, form: Form) -> None:
    """Write the file beside its place, check what it holds, and rename it."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        _check(part, form)
        part.replace(target)
    except OSError as error:
        hint = "Choose another folder with --folder or FEDFORGET_DATA."
        raise DataError(f"{target} cannot be written: {error.strerror or error}.", hint) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _check(part: Path, form: Form) -> None:
    try:
        reason = form.mismatch(form.read(part), part)
    except DataError as error:
        reason = error.problem
    if reason:
        raise SourceError(f"what came is not the published set: {reason}")
