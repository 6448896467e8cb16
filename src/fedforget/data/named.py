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
from fedforget.errors import ConfigError, unknown_choice

NAMES = [*CATALOGUE, "synthetic"]


def load(
    name_or_path: str | Path, *, folder: str | Path | None = None, say: Say = to_stderr, **options: Any
) -> Interactions:
    """Load a named data set, or the interactions in a file.

    Names are ``ml-100k``, ``ml-1m``, ``steam-200k`` and ``synthetic``, whose options are those of the generator:
    ``users``, ``items``, ``tastes``, ``mean_items`` and ``seed``. Named sets are kept in ``folder`` (default: the
    environment variable FEDFORGET_DATA, else the user's cache). A set that is not there is downloaded, and ``say`` is
    called with progress messages. Everything else is the path of a file, whose options are those of `read`: ``user``,
    ``item``, ``separator``, ``time``, ``rating`` and ``min_rating``.
    """
    if isinstance(name_or_path, str):
        if name_or_path == "synthetic":
            return synthetic(**options)
        if name_or_path in CATALOGUE:
            return _load_named(name_or_path, folder, say, options)
        path = Path(name_or_path)
        if not (path.exists() or path.suffix or os.sep in name_or_path or "/" in name_or_path):
            raise unknown_choice("data set", name_or_path, NAMES)
    return read(name_or_path, **options)


def _load_named(name: str, folder: str | Path | None, say: Say, options: dict[str, Any]) -> Interactions:
    if options:
        raise ConfigError(f"{name} takes no option {next(iter(options))!r}.", "Only files and synthetic have options.")
    named_set, place = CATALOGUE[name], data_folder(folder)
    form = named_set.find(place)
    if form is None:
        fetch(name, place, say=say)
        form = named_set.forms[0]
    return named_set.open(form, place)
