"""Device: what the owner of a device, or an app on it, can do: join, recommend, add and forget interactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedforget.device.host import Host
from fedforget.device.log.user_files import UserFiles
from fedforget.device.member import TEST, TRAIN, Member
from fedforget.device.model_file import ModelFile
from fedforget.device.recommendation import allowed_items, best_items
from fedforget.errors import ConfigError, DataError
from fedforget.protocol.invitation import Invitation, positions_in
from fedforget.protocol.terms import RefusedError
from fedforget.runtime.randomness import ItemId, UserId


@dataclass(frozen=True)
class ForgottenItems:
    """The number of interactions that were removed at once, and of those that the server is asked to forget."""

    removed: int
    requested: int


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

    def join(
        self,
        invitation: Invitation,
        user: UserId,
        train: Sequence[ItemId],
        test: Sequence[ItemId] = (),
        *,
        secret: str | None = None,
    ) -> None:
        """Let a user join a federation with its items; ``test`` items are only used to evaluate.

        The user's random draws are keyed by a ``secret`` that never leaves the device; by default a new one.
        """
        positions = invitation.positions(train), invitation.positions(test)
        self.set_catalogue(invitation)
        self.host.enrol(invitation.terms, user, *positions, n_items=len(invitation.items), secret=secret)

    def set_catalogue(self, invitation: Invitation) -> None:
        """Store the item ids of a federation, unless they are stored already."""
        self._federation = self._federation or invitation.terms.federation
        with self.host.opened(invitation.terms.federation) as (_, model):
            known = model.catalogue() if model.catalogue_size() else []
            shared = min(len(known), len(invitation.items))
            if known[:shared] != list(invitation.items[:shared]):
                raise ConfigError(
                    "The invitation has other items than the catalogue on this device.",
                    "Get the newest invitation from the server: RUN/invitation.json.",
                )
            if len(known) < len(invitation.items):
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
            position = {item: place for place, item in enumerate(items)}
            allowed = allowed_items(lambda item: positions_in(position, [item])[0], len(items), candidates, exclude)
            n_items = received.public.items.shape[0]
            score = devices.row_scorer(received.public)
            known = np.zeros(n_items, bool)
            known[: min(n_items, allowed.size)] = allowed[:n_items]
            own = [part.up_to(n_items) for part in parts]
            best = best_items(score, np.zeros(1, np.int64), k, n_items, own, devices.workers, known)
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
            return member.add(_positions(model, items))

    def forget(self, user: UserId, items: Sequence[ItemId]) -> ForgottenItems:
        """Forget some interactions of a user, who stays.

        Those that no model was trained on are removed at once. For the others the device asks the server, with its next
        message and without naming them, to replay the rounds since they counted; until then the user does not train.
        """
        if not items:
            raise DataError("There are no items to forget.", "Give at least one item.")
        with self.host.opened(self.federation) as (files, model):
            member = _member(files, user)
            unwanted = _positions(model, items)
            own = np.concatenate([member.items(part)[0] for part in (TRAIN, TEST)])
            if missing := [item for item, place in zip(items, unwanted, strict=True) if place not in own]:
                raise DataError(f"User {user!r} does not have item {missing[0]!r}.", "Name items that the user has.")
            requested = member.forget(unwanted)
        return ForgottenItems(len(set(unwanted)) - requested, requested)


def _member(files: UserFiles, user: UserId) -> Member:
    try:
        member = Member(files, user)
        member.check()
        return member
    except RefusedError as error:
        raise ConfigError(
            f"User {user!r} is not on this device: there is no file of this user in {files.folder}.",
            "See its users: Device(state).users().",
        ) from error


def _positions(model: ModelFile, items: Sequence[ItemId]) -> list[int]:
    return positions_in({item: place for place, item in enumerate(model.catalogue())}, items)
