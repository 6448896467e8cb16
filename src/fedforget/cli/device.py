"""``fedforget device``: commands for the owner of a device, or for an app on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.ids import KnownIds
from fedforget.cli.runs import K
from fedforget.device.device import Device

app = typer.Typer(no_args_is_help=True, help="On a device: recommend, add and forget interactions.")

State = Annotated[Path, typer.Option(help="The folder of this device's users' files.")]
User = Annotated[str, typer.Option(help="The user's id.")]
Federation = Annotated[str | None, typer.Option(help="The federation's id, if there are several on this device.")]


@app.command()
def recommend(
    state: State,
    user: User,
    k: K = 10,
    candidates: opt.Candidates = None,
    exclude: opt.Exclude = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items that a user does not have, with the newest model that this device received."""
    show.tell_if_compiling()
    device = Device(state, federation)
    wanted = KnownIds(device.users()).parse(user)
    catalogue = KnownIds(device.catalogue(), "item")
    chosen = None if candidates is None else catalogue.parse_all(candidates)
    left_out = catalogue.parse_all(exclude or [])
    best = device.recommend(wanted, k, candidates=chosen, exclude=left_out)
    rows = [(str(rank), str(item), f"{score:.3f}") for rank, (item, score) in enumerate(best, 1)]
    listed = [{"item": item, "score": score} for item, score in best]
    table = show.table(["rank", "item", "score"], rows, left=["item"], title=f"For user {user}")
    show.result({"user": wanted, "items": listed}, as_json, table)


@app.command()
def add(
    state: State,
    user: User,
    items: Annotated[list[str], typer.Argument(help="The items, each by its id.")],
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Add interactions of a user. They count from the next round on and never leave the device."""
    device = Device(state, federation)
    wanted = KnownIds(device.users()).parse(user)
    catalogue = KnownIds(device.catalogue(), "item")
    new = device.add(wanted, [catalogue.parse(item) for item in items])
    known = len(set(items)) - new
    text = f"Added {new} interactions of user {user}; {known} were there already."
    show.result({"user": wanted, "added": new, "known": known}, as_json, text)


@app.command()
def forget(
    state: State,
    user: User,
    items: Annotated[list[str], typer.Argument(help="The items, each by its id.")],
    federation: Federation = None,
    yes: opt.Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget some interactions of a user, who stays in the federation.

    The device asks the server, with its next message, to rebuild the model without them. It does not say which.
    """
    device = Device(state, federation)
    wanted = KnownIds(device.users()).parse(user)
    catalogue = KnownIds(device.catalogue(), "item")
    unwanted = [catalogue.parse(item) for item in items]
    show.confirm(f"This forgets {show.named(unwanted, 'item')} of user {wanted!r} for good.", yes)
    done = device.forget(wanted, unwanted)
    lines = []
    if done.removed:
        lines.append(f"Removed {done.removed} interactions of user {user}. No model was trained on them.")
    if done.requested:
        lines.append(
            f"Asked to forget {done.requested} interactions of user {user}. They are removed when the server has "
            "rebuilt the model without them; until then the user takes part in no round."
        )
    figures = {"user": wanted, "removed": done.removed, "requested": done.requested}
    show.result(figures, as_json, "\n".join(lines))
