"""The source of a run's data: where it is, and whether it still holds what was forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.data import CATALOGUE, NAMES, load
from fedforget.data.catalogue import data_folder
from fedforget.errors import FedForgetError
from fedforget.runtime.randomness import UserId
from fedforget.server.request import ItemsOf


def source_name(data: str) -> str:
    """The name of a data set, or the absolute path of a file."""
    return data if data in NAMES else str(Path(data).expanduser().resolve())


def still_in_source(source: Mapping[str, Any], users: Sequence[UserId], items: ItemsOf) -> str | None:
    """A line that says how much of what was forgotten the source still holds; None if nothing, or if it is gone."""
    name = str(source.get("name", ""))
    here = CATALOGUE[name].find(data_folder()) is not None if name in CATALOGUE else Path(name).is_file()
    if not here:
        return None
    try:
        data = load(name, **source.get("options", {}))
    except FedForgetError:
        return None
    found = sum(user in data.user_index_of for user in users)
    pairs = sum(
        len(set(unwanted).intersection(data.item_ids_of(user)))
        for user, unwanted in items.items()
        if user in data.user_index_of
    )
    held = [f"{found:,} of the forgotten users"] * bool(found) + [f"{pairs:,} of the forgotten interactions"] * bool(
        pairs
    )
    if not held:
        return None
    return f"{name} still holds {' and '.join(held)}. Remove them there too; this run does not read them again."
