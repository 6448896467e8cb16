"""Fallbacks: what was used in place of something that was damaged or missing.

Each is announced by a warning. Within ``collect`` it is also kept, so that it can be stored in the history of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from fedforget.errors import RunWarning

#: Keys of the users concerned, by file and text.
Collected = dict[tuple[str, str], set[int]]
_collected: ContextVar[Collected | None] = ContextVar("collected", default=None)


@dataclass(frozen=True)
class Fallback:
    """What was damaged or missing in a file, and what was used instead.

    ``users`` is the largest number of users concerned, 0 if it is not about users; ``round`` the last finished round
    when it was noticed first.
    """

    round: int
    file: str
    text: str
    users: int

    def __str__(self) -> str:
        users = f" ({self.users:,} user{'s' if self.users != 1 else ''})" if self.users else ""
        return f"{self.file}, at round {self.round}: {self.text}{users}"


def announce(warning: str, file: Path | str, text: str, keys: Collection[int] = (), *, stacklevel: int = 1) -> None:
    """Warn of a fallback, and keep it: the ``text`` names no users, whose ``keys`` are only counted."""
    collected = _collected.get()
    if collected is not None:
        collected.setdefault((str(file), text), set()).update(keys)
    warnings.warn(warning, RunWarning, stacklevel=stacklevel + 1)


@contextmanager
def collect(into: Collected) -> Iterator[None]:
    """Keep the fallbacks that are announced."""
    before = _collected.set(into)
    try:
        yield
    finally:
        _collected.reset(before)


@contextmanager
def expected() -> Iterator[None]:
    """Announce no fallbacks."""
    with collect({}), warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        yield
