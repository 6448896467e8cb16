"""Invitation: what a federation on a network hands to those who join: its terms, and the catalogue of its items."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedforget.data import Interactions
from fedforget.data.ids import Id
from fedforget.device.member import TEST, TRAIN
from fedforget.device.terms import Terms
from fedforget.errors import DataError, RunError
from fedforget.files import write_file
from fedforget.randomness import UserId
from fedforget.settings import Settings

NAME = "invitation.json"
FORMAT = 1


@dataclass(frozen=True)
class Invitation:
    """The terms, and the items by their outside ids in the order of the model's item table."""

    terms: Terms
    items: Sequence[Id]

    @classmethod
    def of(cls, settings: Settings, items: Sequence[Id]) -> Invitation:
        """The invitation to a run."""
        terms = Terms(
            settings.id, len(items), settings.model, settings.sampler, settings.training, settings.log, settings.seed
        )
        return cls(terms, list(items))

    def save(self, path: Path) -> None:
        """Write as JSON."""
        values = {"format": FORMAT, "terms": self.terms.to_dict(), "items": list(self.items)}
        write_file(path, json.dumps(values).encode())

    @classmethod
    def load(cls, path: Path) -> Invitation:
        """Read from JSON, naming what is wrong with it."""
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
            raise RunError(f"{path} is not an invitation: {error}.", "Get it anew from the server.") from error
        if len(invitation.items) != invitation.terms.n_items:
            raise RunError(
                f"{path} names {len(invitation.items)} items, its model has {invitation.terms.n_items}.",
                "Get it anew from the server.",
            )
        return invitation

    def places(self, data: Interactions, user: UserId) -> list[int]:
        """A user's items as places in the catalogue."""
        place = {item: index for index, item in enumerate(self.items)}
        items = data.item_ids[data.items_of(data.user_index(user))].tolist()
        if unknown := [item for item in items if item not in place]:
            raise DataError(
                f"Item {unknown[0]!r} of user {user!r} is not in the federation's catalogue of {len(place):,}.",
                "Leave such items out; the catalogue is fixed when a federation begins.",
            )
        return [place[item] for item in items]

    def parts(self, train: Interactions, test: Interactions, user: UserId) -> dict[str, list[int]]:
        """What a user joins with."""
        return {TRAIN: self.places(train, user), TEST: self.places(test, user)}


def catalogue_digest(items: Sequence[Id]) -> str:
    """A checksum of a catalogue, by which a run knows it again."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()
