"""ItemKind: whether the items of a run are named by whole numbers or by text, seen from its files."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from fedforget.runtime.ids import ItemId
from fedforget.server.config_file import read_config


class ItemKind(Enum):
    """How items are named. A run never has both."""

    NUMBERS = "whole numbers"
    TEXT = "text"

    @classmethod
    def of_run(cls, run: Path) -> ItemKind | None:
        """The kind of the items of a simulated run, by the first one in its data; None if that cannot be read."""
        folder = run / f"trajectory-{read_config(run / 'config.toml')['trajectory']}"
        try:
            with (folder / "devices" / "data" / "items.json").open("rb") as file:
                start = file.read(2)
        except OSError:
            return None
        return cls.TEXT if start == b'["' else cls.NUMBERS

    def names(self, items: Iterable[ItemId]) -> bool:
        """Whether all items are of this kind."""
        return all(isinstance(item, str) is (self is ItemKind.TEXT) for item in items)
