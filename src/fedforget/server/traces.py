"""Traces: a search of every file of a run folder for what names some users."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedforget.runtime.files import reason_of
from fedforget.server.parsed_file import ParsedFile
from fedforget.server.wanted import Wanted

#: The search reads a file in pieces of this size.
PIECE = 1 << 24


@dataclass
class Traces:
    """The files with a trace, with its kind, and those that could not be read, with the reason; no ids.

    ``files`` is the number of all.
    """

    found: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    files: int = 0


def find_traces(folder: Path, wanted: Wanted) -> Traces:
    """Search the names and the content of all files below a folder.

    Keys, salts and long ids are looked for everywhere. Files of a known form are parsed, and ids compared with values.
    """
    traces = Traces()

    def on_error(error: OSError) -> None:
        name = wanted.hidden(str(Path(error.filename).relative_to(folder)))
        traces.unreadable.append(f"{name}: {reason_of(error)}")

    for path in _entries(folder, on_error):
        name = wanted.hidden(str(path.relative_to(folder)))
        kinds = wanted.in_name(path.name)
        try:
            kinds |= _kinds_in(path, name, wanted, traces)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as error:
            traces.unreadable.append(f"{name}: {reason_of(error)}")
        traces.found += [f"{name}: {kind}" for kind in sorted(kinds)]
    return traces


def _entries(folder: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Everything below a folder."""
    for place, folders, files in os.walk(folder, onerror=on_error):
        folders.sort()
        yield from (Path(place) / name for name in (*folders, *sorted(files)))


def _kinds_in(path: Path, name: str, wanted: Wanted, traces: Traces) -> set[str]:
    """The kinds of traces in the content of a file."""
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        return set()
    traces.files += 1
    if not stat.S_ISREG(mode):
        traces.unreadable.append(f"{name}: it is a link, or no file")
        return set()
    parsed = ParsedFile.read(path)
    kinds = wanted.in_text(parsed.text) if parsed.text else set()
    problem = parsed.problem
    try:
        for value in parsed.values:
            kinds |= wanted.in_value(value)
    except ValueError as error:
        problem = str(error)
    if problem:
        traces.unreadable.append(f"{name}: {problem}")
    return kinds | _in_bytes(path, wanted, parsed.rest)


def _in_bytes(path: Path, wanted: Wanted, rest: int | None) -> set[str]:
    """Keys and salts anywhere in a file, and ids from the place ``rest`` on."""
    kinds: set[str] = set()
    content, start, reach = b"", 0, wanted.reach
    with path.open("rb") as file:
        piece = file.read(PIECE)
        while piece:
            content, piece = content + piece, file.read(PIECE)
            kinds |= wanted.marks_in(content)
            if rest is not None:  # what stands at an end of a piece is looked at with the next one
                first = max(rest - start, reach if start else 0)
                kinds |= wanted.ids_in(content, first, len(content) - (reach if piece else 0))
            start, content = start + max(len(content) - 2 * reach, 0), content[-2 * reach :]
    return kinds
