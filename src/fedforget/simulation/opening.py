"""Opening a run while another process may be changing it: what seems wrong counts only if the run stood still."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from fedforget.errors import BusyError
from fedforget.runtime.files import file_signature

#: Seconds to wait for a change before an error or a warning is believed; then the run is opened again.
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class Closable(Protocol):
    """What is opened."""

    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


def open_steadily(path: Path, open_: Callable[[], Opened]) -> Opened:
    """Open a run; if that fails or warns and another process changes the run meanwhile, open it again."""
    for pause in PAUSES:
        before, parts = _signatures(path), _parts(path)
        found: Opened | Exception
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                found = open_()
            except Exception as error:  # parts of the run that do not fit each other fail in any way
                found = error
        if told or isinstance(found, Exception):
            time.sleep(pause)
            if _signatures(path) != before:
                if not isinstance(found, Exception):
                    found.close()
                continue
        elif _parts(path) != parts and pause != PAUSES[-1]:  # parts may be from before the change, and from after it
            found.close()
            continue
        for each in told:
            warnings.warn(each.message, each.category, stacklevel=3)
        if isinstance(found, Exception):
            raise found
        return found
    raise BusyError(f"Another process is changing {path} all the time.", "Try again in a moment.")


def _signatures(path: Path) -> list[object]:
    """What changes with every round, addition and erasure, and not with reading."""
    return [*_parts(path), *sorted(path.glob("trajectory-*/snapshots/*"))]


def _parts(path: Path) -> list[object]:
    """What changes with every addition and erasure."""
    return [file_signature(path / "config.toml"), *sorted(path.glob("trajectory-*/devices/data/*"))]
