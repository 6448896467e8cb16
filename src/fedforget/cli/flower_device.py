"""``fedforget flower enrol`` and ``wipe``: commands for the owner of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import Data, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.ids import KnownIds
from fedforget.data import load
from fedforget.device.device import Device
from fedforget.device.host import Host
from fedforget.protocol.invitation import Invitation

State = Annotated[Path, typer.Option(help="The folder of this device's users' files.")]
Users = Annotated[
    list[str], typer.Option(help="User ids, separated by commas; repeatable; a JSON list for ids with commas.")
]


def enrol(
    invitation: Annotated[Path, typer.Option(help="The invitation file from the server.")],
    state: State,
    users: Users,
    data: Data,
    test: opt.TestShare = 0.2,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
) -> None:
    """On a device: let its users join a federation. Their interactions stay on the device."""
    loaded = Invitation.load(invitation)
    interactions = load(data, folder=folder, **file_options(user_column, item_column, separator))
    train_part, test_part = interactions.split(test, loaded.terms.seed)
    for user in KnownIds(interactions.user_ids.tolist()).parse_all(users):
        train_items, test_items = train_part.item_ids_of(user), test_part.item_ids_of(user)
        Device(state).join(loaded, user, train_items, test_items)
        show.lines(
            f"User {user} has joined federation {loaded.terms.federation} with {len(train_items)} training and "
            f"{len(test_items)} test items."
        )


def wipe(
    state: State,
    federation: Annotated[str, typer.Option(help="The federation's id.")],
    users: Users,
    yes: opt.Yes = False,
) -> None:
    """On a device: remove everything about some users, without an order from the server."""
    wanted = KnownIds(Device(state, federation).users()).parse_all(users)
    show.confirm(f"This removes {show.named(wanted, 'user')} from this device for good.", yes)
    for user in wanted:
        removed = Host(state).remove(federation, str(user))
        show.lines(f"{'Removed' if removed else 'Found nothing about'} user {user}.")
