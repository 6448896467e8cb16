"""``fedforget forget``: forget users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson
from fedforget.cli.ids import KnownIds
from fedforget.cli.requests import queue
from fedforget.cli.runs import Run, Workers, open_run
from fedforget.cli.source import still_in_source
from fedforget.device.compute import Compute
from fedforget.errors import ConfigError, FedForgetError, RunError
from fedforget.models import Recommender
from fedforget.runtime.randomness import ItemId, UserId
from fedforget.server.config_file import on_network
from fedforget.server.coordinator import Coordinator
from fedforget.server.request import ErasureRequest, ItemsOf
from fedforget.server.service import Service, open_service
from fedforget.server.unlearning import METHODS, Method, default_method
from fedforget.server.unlearning.estimate import Estimate
from fedforget.simulation.federation import Federation

#: Options by name; None for those that were not given.
Given = Mapping[str, Any]


class StoppedError(FedForgetError):
    """Forgetting was interrupted and can be continued."""

    exit_code = 130


def forget(
    run: Run,
    users: Annotated[
        list[str] | None,
        typer.Option(help="Ids of users to forget, separated by commas; repeatable; a JSON list for ids with commas."),
    ] = None,
    users_file: Annotated[
        Path | None,
        typer.Option(help="A file with the ids: one per line, exactly; or .json with a list; or .csv, column user."),
    ] = None,
    malicious: Annotated[bool, typer.Option("--malicious", help="Forget the malicious users of the run.")] = False,
    user: Annotated[str | None, typer.Option(help="Forget some --items of this user, who stays.")] = None,
    items: Annotated[
        list[str] | None, typer.Option(help="With --user: item ids, separated by commas; repeatable; or a JSON list.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help=f"{', '.join(METHODS)}; default: retrain for ials, else fru.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the method, such as replay_fraction=0.2; repeatable. List: fedforget components.",
        ),
    ] = None,
    require: Annotated[
        float | None,
        typer.Option(
            help="Minimum fraction of updates that must arrive; otherwise the request is aborted (default 0)."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the estimated cost and change nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted request.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Drop a request that waits or was interrupted.")] = False,
    wait: Annotated[
        float, typer.Option(help="On a network: seconds to wait until the server has carried it out.")
    ] = 0.0,
    yes: opt.Yes = False,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Forget users: rebuild the model as if they had never taken part, and erase everything about them.

    The old model stays in service until the new one is complete. Stop it at any time; --resume continues. If devices
    are on a network, the request is queued, and the server carries it out before its next round.
    """
    who = {"--users": users or None, "--users-file": users_file, "--malicious": malicious or None, "--user": user}
    if (user is None) != (not items):
        raise ConfigError(f"--user is {user!r}, --items is {items!r}.", "Give both; --users forgets whole users.")
    how = {"--method": method, "--set": assignments or None}
    _check(who, {**how, "--dry-run": dry_run or None}, resume, abandon)
    with closing(open_service(run) if on_network(run) else open_run(run, Compute(workers=workers))) as fed:
        if abandon:
            _abandon(fed, run, as_json)
            return
        if isinstance(fed, Service) and resume:
            raise ConfigError("This run is on a network.", "Its server continues the request when it runs.")
        if resume:
            request = _interrupted(fed, run)
            forgotten, chosen, partial = list(request.users), METHODS.build(request.method), request.items_of
        else:
            forgotten, chosen = _named_users(fed, who), _method(fed.model, method, assignments or ())
            partial = _partial(fed, user, items)
        if dry_run:
            _estimate(fed, run, forgotten, chosen, partial, as_json)
            return
        cost = fed.estimate(forgotten, chosen, partial)  # raises errors before the question
        if not resume:
            show.confirm(_question(forgotten, partial), yes)
        if isinstance(fed, Service):
            queue(fed, run, forgotten, chosen, require, wait, as_json)
        else:
            _forget(fed, run, forgotten, chosen, partial, require, cost, as_json)


def _question(users: Sequence[UserId], partial: ItemsOf) -> str:
    """What is about to be forgotten."""
    parts = [show.named(users, "user")] if users else []
    parts += [f"{show.named(items, 'item')} of user {user!r}" for user, items in partial.items()]
    return f"This forgets {' and '.join(parts)} for good."


def _check(who: Given, rest: Given, resume: bool, abandon: bool) -> None:
    """Refuse options that exclude each other."""
    named = [name for name, value in who.items() if value is not None]
    others = named + [name for name, value in rest.items() if value is not None]
    if resume and abandon:
        raise ConfigError("--resume and --abandon exclude each other.", "Give one: finish the request, or drop it.")
    if (resume or abandon) and others:
        raise ConfigError(
            f"{others[0]} was given with {'--resume' if resume else '--abandon'}.",
            f"The interrupted request has its users and its method: leave {', '.join(others)} out.",
        )
    if "--malicious" in named and len(named) > 1:
        raise ConfigError(
            f"{named[0]} was given with --malicious, which names all malicious users.", "Give one of them."
        )
    if not (named or resume or abandon):
        raise ConfigError("The request names nobody.", "Give --users 17,23, --users-file FILE or --malicious.")


def _method(model: Recommender, name: str | None, assignments: Sequence[str]) -> Method:
    """The method with the settings that were given; the model's default if none is named."""
    default = default_method(model)
    if name is None and not assignments:
        return default
    chosen = default if name in (None, default.name) else METHODS.build(name)
    pairs = map(opt.parse_assignment, assignments)
    return METHODS.build(chosen.settings() | {".".join(key): value for key, value in pairs})


def _named_users(fed: Coordinator, who: Given) -> list[UserId]:
    """The users to forget, with ids of the data's type."""
    if who["--malicious"]:
        if fed.config.attack is None:
            raise ConfigError("This run has no malicious users (any more).", "Name the users: --users 17,23.")
        return list(fed.config.attack.users)
    known = KnownIds(fed.members)
    ids = known.parse_all(who["--users"] or [])
    if who["--user"] is not None and not ids and who["--users-file"] is None:
        return []
    if who["--users-file"] is not None:
        ids += known.read(who["--users-file"])
    if not ids:
        raise ConfigError("The request names nobody.", "Give at least one user id.")
    return list(dict.fromkeys(ids))


def _partial(fed: Coordinator, user: str | None, items: Sequence[str] | None) -> dict[UserId, list[ItemId]]:
    """The items to forget of a user who stays."""
    if user is None or not items:
        return {}
    catalogue = KnownIds(fed.train.item_ids.tolist() if isinstance(fed, Federation) else [], "item")
    return {KnownIds(fed.members).parse(user): catalogue.parse_all(items)}


def _estimate(
    fed: Coordinator, run: Path, forgotten: Sequence[UserId], method: Method, partial: ItemsOf, as_json: bool
) -> None:
    cost = fed.estimate(forgotten, method, partial)
    asked = {"run": str(run), "dry_run": True, "users": len(set(forgotten)), "method": cost.method}
    next_step = "Nothing was changed. The same command without --dry-run does it."
    show.result({**asked, "estimate": cost.to_dict()}, as_json, str(cost), next_step)


def _forget(
    fed: Federation,
    run: Path,
    forgotten: Sequence[UserId],
    method: Method,
    partial: ItemsOf,
    require: float | None,
    cost: Estimate,
    as_json: bool,
) -> None:
    def show_salt(request: ErasureRequest) -> None:
        show.notes.print(f"Request {request.id}, salt {request.salt}", soft_wrap=True)

    last = fed.rounds + (0 if cost.first_round is None else method.more_rounds(fed.rounds))
    try:
        with show.rounds_bar(last - cost.rounds, last, quiet=as_json) as on_round:
            receipt = fed.forget(
                forgotten, method, items=partial, require=require, on_round=on_round, on_request=show_salt
            )
    except KeyboardInterrupt as stop:
        if (request := fed.waiting) is None:
            raise
        if request.trajectory <= fed.config.trajectory:
            raise StoppedError(
                "Interrupted after the new model went into service: the users are forgotten.",
                f"The rest of their data is removed when the run is next opened: fedforget receipts {run}",
            ) from stop
        hint = f"Continue: fedforget forget {run} --resume\nDrop it: fedforget forget {run} --abandon"
        raise StoppedError("Interrupted. The old model is still in service, nobody is forgotten yet.", hint) from stop
    note = still_in_source(fed.config.data, forgotten, partial)
    show.result(
        {"run": str(run), "rounds": fed.rounds, "receipt": receipt.to_dict(), "salt": receipt.salt, "source": note},
        as_json,
        f"{receipt}\n  salt       {receipt.salt}",
        *([] if note is None else [note]),
        "Keep the salt: it is stored nowhere and is needed to recognise a user in the receipt.\n"
        f"The receipt is in {run / 'receipts' / receipt.request}.json. Next:\n"
        f"  fedforget receipts {run} --check USER --salt {receipt.salt}\n"
        f"  fedforget evaluate {run}\n"
        f"  fedforget train --out {run} --rounds N",
    )


def _interrupted(fed: Coordinator, run: Path) -> ErasureRequest:
    """The request that is not finished."""
    queued = fed.queue.waiting() if isinstance(fed, Service) else []
    if (request := fed.waiting or next(iter(queued), None)) is None:
        raise RunError(f"No request was interrupted in {run}.", f"What is done is listed by: fedforget receipts {run}")
    return request


def _abandon(fed: Coordinator, run: Path, as_json: bool) -> None:
    request = _interrupted(fed, run)
    fed.abandon_forgetting()
    text = f"Request {request.id} is dropped: its {len(request.users)} users stay."
    show.result({"run": str(run), "abandoned": request.id}, as_json, text)
