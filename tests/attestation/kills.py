"""Processes that are killed around a call: forks of this one, which have nothing to import."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator

from tests.deadly import deadly_at

#: The calls by which files change.
CALLS = [
    ("fedforget.runtime.files", "", "make_private"),
    ("pathlib", "Path", "write_bytes"),
    ("pathlib", "Path", "replace"),
    ("pathlib", "Path", "unlink"),
    ("pathlib", "Path", "mkdir"),
]


def killed_everywhere(act: Callable[[], object], restore: Callable[[], object]) -> Iterator[str]:
    """Act from the restored state, killed before and after each of the calls; yields where it was killed."""
    for call in CALLS:
        for when in ("before", "after"):
            n = 1
            while restore() is None and _is_killed(act, *call, when, n):
                yield f"{when} {'.'.join(call)} {n}"
                n += 1


def _is_killed(act: Callable[[], object], *place: object) -> bool:
    """Whether the act got so far as to be killed."""
    process = multiprocessing.get_context("fork").Process(target=_act, args=(act, *place))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests are not used here
        process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _act(act: Callable[[], object], *place: object) -> None:
    deadly_at(*place)  # type: ignore[arg-type]
    act()
