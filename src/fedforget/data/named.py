"""Loading interactions by the name of a data set or by the path of a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedforget.data.catalogue import CATALOGUE, data_folder
from fedforget.data.fetch import fetch, to_stderr
from fedforget.data.formats import read
from fedforget.data.interactions import Interactions
from fedforget.data.sources import Say
from fedforget.data.synthetic import synthetic
from fedforget.errors import ConfigError, DataError, unknown_choice

NAMES = [*CATALOGUE, "synthetic"]


def load(
    name_or_path: str | Path, *, folder: str | Path | None = None, say: Say = to_stderr, **options: Any
) -> Interactions:
    """Load a named data set, or the interactions of a file.

    Names are ``ml-100k``, ``ml-1m``, ``steam-200k`` and ``synthetic``, whose options are those of the
    generator: ``users``, ``items``, ``tastes``, ``mean_items`` and ``seed``. A named set is looked for in
    ``folder``, else in the folder that the environment variable FEDFORGET_DATA names, else in the user's
    cache; one that is not there is fetched, which ``say`` is told. Everything else is the path of a file, whose
    options are those of `read`: ``user``, ``item`` and ``separator``.
    """
    if isinstance(name_or_path, str):
        if name_or_path == "synthetic":
            return synthetic(**options)
        if name_or_path in CATALOGUE:
            return _load_named(name_or_path, folder, say, options)
        if not _looks_like_path(name_or_path):
            raise unknown_choice("data set", name_or_path, NAMES)
    return read(name_or_path, **options)


def _load_named(name: str, folder: str | Path | None, say: Say, options: dict[str, Any]) -> Interactions:
    if options:
        raise ConfigError(f"{name} takes no option {next(iter(options))!r}.", "Options are for files.")
    chosen, place = CATALOGUE[name], data_folder(folder)
    form = chosen.find(place)
    if form is None:
        fetch(name, place, say=say)
        form = chosen.find(place)
    if form is None:
        raise DataError(f"{name} vanished from {place} while it was read.", "Try again.")
    return chosen.open(form, place)


def _looks_like_path(text: str) -> bool:
    """Whether text can be meant as a path: something is there, or it has a folder or an ending."""
    path = Path(text)
    return path.exists() or bool(path.suffix) or os.sep in text or "/" in text
