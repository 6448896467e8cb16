"""``fedforget flower enrol`` and ``wipe``: what the owner of a device does, on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import Data, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.requests import split_ids, typed
from fedforget.data import load
from fedforget.device.host import Host
from fedforget.device.member import TEST, TRAIN
from fedforget.invitation import Invitation

State = Annotated[Path, typer.Option(help="The folder of this device's users' files.")]
Users = Annotated[str, typer.Option(help="User ids, separated by commas.")]


def enrol(
    invitation: Annotated[Path, typer.Option(help="The invitation that the server wrote.")],
    state: State,
    user: Users,
    data: Data,
    test: opt.TestShare = 0.2,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
) -> None:
    """On a device: let users of it join a federation with their interactions, which stay here."""
    given = Invitation.load(invitation)
    everything = load(data, folder=folder, **file_options(user_column, item_column, separator))
    train_part, test_part = everything.split(test, given.terms.seed)
    known = everything.user_ids.tolist()
    for name in (typed(one, known) for one in split_ids(user)):
        parts = given.parts(train_part, test_part, name)
        Host(state).enrol(given.terms, name, **parts)
        show.out.print(
            f"User {name} has joined federation {given.terms.federation} with {len(parts[TRAIN])} items to train on "
            f"and {len(parts[TEST])} to test with.",
            soft_wrap=True,
        )


def wipe(state: State, federation: Annotated[str, typer.Option(help="The federation's id.")], user: Users) -> None:
    """On a device: remove everything that it keeps of some users, without waiting for the server to ask for it."""
    for given in split_ids(user):
        gone = Host(state).remove(federation, given)
        text = "Nothing is kept here of" if gone else "Nothing was kept here of"
        show.out.print(f"{text} user {given}{' any more' if gone else ''}.", soft_wrap=True)
