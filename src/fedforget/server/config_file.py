"""The ``config.toml`` of a run folder, as plain tables: for processes that must not load numerical packages."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedforget.errors import RunError
from fedforget.runtime.files import refused

FORMAT = 4


def read_config(path: Path) -> dict[str, Any]:
    """The tables of the ``config.toml`` of a run folder."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(
            f"{path.parent} is not a run folder: it has no config.toml.",
            "Make one with: fedforget train ml-100k --out FOLDER.",
        ) from error
    except (OSError, ValueError) as error:
        raise refused(path, error) or RunError(
            f"{path} cannot be read: {error}.", "Restore it or start a new run in another folder."
        ) from error
    if values.get("format") != FORMAT:
        raise RunError(
            f"{path} has format {values.get('format')!r}; this version of fedforget reads format {FORMAT}.",
            "Use the version of fedforget that wrote it (0.2 for format 2, an early 0.3 for 3), or train again.",
        )
    return values


def on_network(run: Path) -> bool:
    """Whether the devices of a run are on a network."""
    return bool(read_config(run / "config.toml").get("engine", "simulation") != "simulation")
