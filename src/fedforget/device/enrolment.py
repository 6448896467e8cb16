"""Enrolment: a user's interactions as positions in a federation's catalogue."""

from __future__ import annotations

from fedforget.data import Interactions
from fedforget.device.member import TEST, TRAIN
from fedforget.errors import DataError
from fedforget.protocol.invitation import Invitation
from fedforget.runtime.randomness import UserId


def items_of(invitation: Invitation, train: Interactions, test: Interactions, user: UserId) -> dict[str, list[int]]:
    """A user's training and test items, for ``Host.enrol``."""
    position = {item: index for index, item in enumerate(invitation.items)}
    positions: dict[str, list[int]] = {}
    for part, data in ((TRAIN, train), (TEST, test)):
        items = data.item_ids[data.items_of(data.user_index(user))].tolist()
        if unknown := [item for item in items if item not in position]:
            catalogue = f"the federation's catalogue of {len(position):,} items"
            raise DataError(
                f"Item {unknown[0]!r} of user {user!r} is not in {catalogue}.",
                "Remove such items; the catalogue is fixed when a federation is created.",
            )
        positions[part] = [position[item] for item in items]
    return positions
