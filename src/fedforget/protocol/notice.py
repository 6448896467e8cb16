"""Notice: what a device tells the server besides the results of a task."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.runtime.randomness import UserId


@dataclass(frozen=True)
class ItemsRequest:
    """A user's own request to forget some interactions: how many, and the round from which the first counted.

    The items are not named. ``number`` is 1 for the user's first request and grows with every other.
    """

    user: UserId
    number: int
    since: int
    count: int


@dataclass(frozen=True)
class Notice:
    """The users' requests to forget items that are not carried out yet, and other news of a device.

    ``added_items`` is the number of items added to the catalogue whose ids the device has. ``erased`` are the users of
    the order whose erased items are no longer on the device.
    """

    added_items: int = 0
    requests: tuple[ItemsRequest, ...] = ()
    erased: tuple[UserId, ...] = ()
