"""Device: what the owner of a device, or an app on it, can do: join, recommend, add interactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedforget.device.host import Host
from fedforget.device.member import Member
from fedforget.device.recommendation import allowed_items, best_items
from fedforget.errors import ConfigError, DataError, RunError
from fedforget.protocol.invitation import Invitation, ItemId
from fedforget.runtime.randomness import UserId


class Device:
    """The users' files of a device in a ``state`` folder.

    If users of several federations are on the device, name the ``federation``.
    """

    def __init__(self, state: str | Path, federation: str | None = None) -> None:
        self.host = Host(Path(state))
        self._federation = federation

    @property
    def federation(self) -> str:
        """The id of the federation."""
        if self._federation is None:
            found = self.host.federations()
            if len(found) != 1:
                named = f": {', '.join(found)}" if found else ""
                raise ConfigError(
                    f"{self.host.folder} holds {len(found)} federations{named}.",
                    "Name one: --federation ID." if found else "Enrol a user first: fedforget flower enrol.",
                )
            self._federation = found[0]
        return self._federation

    def join(self, invitation: Invitation, user: UserId, train: Sequence[ItemId], test: Sequence[ItemId] = ()) -> None:
        """Let a user join a federation with its items; ``test`` items are only used to evaluate."""
        position = _positions(invitation.items)
        parts = [[_position(position, item) for item in items] for items in (train, test)]
        self.host.enrol(invitation.terms, user, *parts)
        self.set_catalogue(invitation)

    def set_catalogue(self, invitation: Invitation) -> None:
        """Store the item ids of a federation."""
        self._federation = self._federation or invitation.terms.federation
        with self.host.opened(invitation.terms.federation) as (_, model):
            model.save_catalogue(list(invitation.items))

    def catalogue(self) -> list[ItemId]:
        """The item ids of the federation."""
        with self.host.opened(self.federation) as (_, model):
            return model.catalogue()

    def users(self) -> list[UserId]:
        """The users on this device."""
        with self.host.opened(self.federation) as (files, _):
            return self.host.users(files)

    def recommend(
        self,
        user: UserId,
        k: int = 10,
        *,
        candidates: Sequence[ItemId] | None = None,
        exclude: Sequence[ItemId] = (),
    ) -> list[tuple[ItemId, float]]:
        """The k best items for a user with the newest model received, best first, with their scores.

        All items that the user has are left out, also those kept for testing. ``candidates`` are the items to choose
        from (default: all), ``exclude`` further items to leave out.
        """
        with self.host.opened(self.federation) as (files, model):
            member = _member(files, user)
            received = model.load(member.terms.model.dense_layout)
            items = model.catalogue()
            devices, parts = self.host.scoring(member, received)
            position = _positions(items)
            allowed = allowed_items(lambda item: _position(position, item), len(items), candidates, exclude)
            n_items = received.public.items.shape[0]
            score = devices.row_scorer(received.public)
            best = best_items(score, np.zeros(1, np.int64), k, n_items, parts, devices.workers, allowed[:n_items])
        found = [
            (int(item), float(score)) for item, score in zip(best.items[0], best.scores[0], strict=True) if item >= 0
        ]
        return [(items[item], score) for item, score in found]

    def add(self, user: UserId, items: Sequence[ItemId]) -> int:
        """Add interactions of a user; they count from the next round on. Returns how many were new."""
        if not items:
            raise DataError("There are no items to add.", "Give at least one item.")
        with self.host.opened(self.federation) as (files, model):
            member = _member(files, user)
            position = _positions(model.catalogue())
            return member.add([_position(position, item) for item in items])


def _member(files: object, user: UserId) -> Member:
    try:
        return Member(files, user)  # type: ignore[arg-type]
    except RunError as error:
        raise ConfigError(f"User {user!r} is not on this device.", "See its users: Device(state).users().") from error


def _positions(items: Sequence[ItemId]) -> dict[ItemId, int]:
    return {item: place for place, item in enumerate(items)}


def _position(position: dict[ItemId, int], item: ItemId) -> int:
    if item not in position:
        raise DataError(f"Item {item!r} is not in the federation's catalogue.", "Leave it out, or check its type.")
    return position[item]
