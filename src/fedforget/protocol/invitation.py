"""Invitation: the terms and the catalogue of items that devices need to join a federation on a network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedforget.errors import RunError
from fedforget.protocol.terms import Terms
from fedforget.runtime.files import write_file

#: The name of the file in a run folder.
NAME = "invitation.json"
FORMAT = 2
ItemId = int | str


@dataclass(frozen=True)
class Invitation:
    """The terms, and the item ids in the order of the item table."""

    terms: Terms
    items: Sequence[ItemId]

    def save(self, path: Path) -> None:
        values = {"format": FORMAT, "terms": self.terms.to_dict(), "items": list(self.items)}
        write_file(path, json.dumps(values).encode())

    @classmethod
    def load(cls, path: Path) -> Invitation:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']!r}, not {FORMAT}")
            items = values["items"]
            if not isinstance(items, list) or not all(type(item) in (int, str) for item in items):
                raise ValueError("its items are not a list of ids")
            invitation = cls(Terms.from_dict(values["terms"]), items)
        except FileNotFoundError as error:
            raise RunError(
                f"There is no invitation {path}.", "The server's run folder has it: RUN/invitation.json."
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is not an invitation: {error}.", "Get it again from the server.") from error
        if len(invitation.items) != invitation.terms.n_items:
            raise RunError(
                f"{path} has {len(invitation.items)} items, its model has {invitation.terms.n_items}.",
                "Get it again from the server.",
            )
        return invitation


def catalogue_digest(items: Sequence[ItemId]) -> str:
    """A digest of the item ids, in order."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()
