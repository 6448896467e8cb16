"""Enrolment: a user's interactions as positions in the catalogue of a federation."""

from __future__ import annotations

from fedforget.data import Interactions
from fedforget.device.member import TEST, TRAIN
from fedforget.errors import DataError
from fedforget.protocol.invitation import Invitation
from fedforget.runtime.randomness import UserId


def items_of(invitation: Invitation, train: Interactions, test: Interactions, user: UserId) -> dict[str, list[int]]:
    """A user's training and test items, for ``Host.enrol``."""
    return {TRAIN: _positions(invitation, train, user), TEST: _positions(invitation, test, user)}


def _positions(invitation: Invitation, data: Interactions, user: UserId) -> list[int]:
    position = {item: index for index, item in enumerate(invitation.items)}
    items = data.item_ids[data.items_of(data.user_index(user))].tolist()
    if unknown := [item for item in items if item not in position]:
        raise DataError(
            f"Item {unknown[0]!r} of user {user!r} is not in the federation's catalogue of {len(position):,} items.",
            "Leave such items out; the catalogue is fixed when a federation is created.",
        )
    return [position[item] for item in items]
