"""Invitation: the terms and the catalogue of items that devices need to join a federation on a network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedforget.errors import ConfigError, DataError, RunError
from fedforget.protocol.terms import Terms
from fedforget.runtime.checked_json import from_checked_json, to_checked_json
from fedforget.runtime.files import write_file
from fedforget.runtime.randomness import ItemId

#: The name of the file in a run folder.
NAME = "invitation.json"
FORMAT = 2


@dataclass(frozen=True)
class Invitation:
    """The terms, and the item ids in the order of the item table, also of items that were added later."""

    terms: Terms
    items: Sequence[ItemId]

    def positions(self, items: Sequence[ItemId]) -> list[int]:
        """The positions of items in the item table."""
        return positions_in(self._position, items)

    @cached_property
    def _position(self) -> dict[ItemId, int]:
        return {item: place for place, item in enumerate(self.items)}

    def save(self, path: Path) -> None:
        """Write a JSON file, with a digest: devices must not join with other terms or items."""
        values = {"format": FORMAT, "terms": self.terms.to_dict(), "items": list(self.items)}
        write_file(path, to_checked_json(values), private=False)

    @classmethod
    def load(cls, path: Path) -> Invitation:
        values = read_invitation(path)
        try:
            invitation = cls(Terms.from_dict(values["terms"]), values["items"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is not an invitation: {error}.", "Get it again from the server.") from error
        except ConfigError as error:
            raise type(error)(f"{path}: {error.problem}", error.hint) from error
        if len(invitation.items) < invitation.terms.n_items:
            raise RunError(
                f"{path} has {len(invitation.items)} items, the federation started with {invitation.terms.n_items}.",
                "Get it again from the server.",
            )
        return invitation


def read_invitation(path: Path) -> dict[str, Any]:
    """The content of an invitation's file: its items and its digest are checked, its terms are not."""
    try:
        values = from_checked_json(path.read_bytes())
        if values["format"] != FORMAT:
            raise ValueError(f"its format is {values['format']!r}, not {FORMAT}")
        items = values["items"]
        if not isinstance(items, list) or not all(type(item) in (int, str) for item in items):
            raise ValueError("its items are not a list of ids")
    except FileNotFoundError as error:
        raise RunError(
            f"There is no invitation {path}.", "The server's run folder has it: RUN/invitation.json."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is not an invitation: {error}.", "Get it again from the server.") from error
    return values


def positions_in(position: Mapping[ItemId, int], items: Sequence[ItemId]) -> list[int]:
    """The positions of items in a catalogue; an error names the first that is not in it."""
    if unknown := [item for item in items if item not in position]:
        raise DataError(
            f"Item {unknown[0]!r} is not in the federation's catalogue of {len(position):,} items.",
            "Leave it out, check its type, or let the operator add it: fedforget flower add-items.",
        )
    return [position[item] for item in items]


def catalogue_digest(items: Sequence[ItemId]) -> str:
    """A digest of the item ids, in order."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()
