"""``fedforget forget``: have users forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.requests import looked_at, on_network, queue, split_ids, typed
from fedforget.cli.runs import Run, Workers, opened
from fedforget.coordinator import Coordinator
from fedforget.device.compute import Compute
from fedforget.errors import ConfigError, FedForgetError, RunError, one_of
from fedforget.randomness import UserId
from fedforget.replay import CALIBRATIONS, ITEMS, PARTS, PRIVATES
from fedforget.request import Request
from fedforget.server.unlearning import METHODS, Method, build_method, default_method
from fedforget.server.unlearning.calibrate import GRANULARITIES
from fedforget.server.unlearning.receipt import Receipt
from fedforget.service import Service

#: By the name of each option, what was given for it; None for nothing.
Given = Mapping[str, Any]


class StoppedError(FedForgetError):
    """Forgetting was stopped by hand, and can go on."""

    exit_code = 130


def forget(
    run: Run,
    users: Annotated[str | None, typer.Option(help="The ids of users to forget, separated by commas.")] = None,
    users_file: Annotated[Path | None, typer.Option(help="A file with the ids of users to forget, one a line.")] = None,
    malicious: Annotated[bool, typer.Option("--malicious", help="Forget the malicious users of the run.")] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(METHODS)}; if not given, what suits the model: retrain for ials, else fru."
        ),
    ] = None,
    speedup: Annotated[float | None, typer.Option(help="fru: λ, the share of the local epochs; else 0.1.")] = None,
    calibration: Annotated[str | None, typer.Option(help=f"fru: on {' or '.join(CALIBRATIONS)}; else device.")] = None,
    granularity: Annotated[str | None, typer.Option(help=f"fru: {' or '.join(GRANULARITIES)}; else row.")] = None,
    replay: Annotated[str | None, typer.Option(help=f"fru: on {' or '.join(ITEMS)} items; else fresh.")] = None,
    parts: Annotated[str | None, typer.Option(help=f"fru: old lengths for {' or '.join(PARTS)}; else rows.")] = None,
    private: Annotated[str | None, typer.Option(help=f"fru: {' or '.join(PRIVATES)}; else stretched.")] = None,
    stride: Annotated[
        int | None,
        typer.Option(help="fru, retrain: past rounds in one communication round; else fru: by model, retrain: 1."),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(help="fru: how far such a step goes, relative to the old model; 0: no limit; else by model."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="retrain: train anew in so many rounds; else as many as there were.")
    ] = None,
    fraction: Annotated[
        float | None, typer.Option(help="retrain --steps: the share of devices in each; else 1.")
    ] = None,
    lr_scale: Annotated[
        float | None, typer.Option(help="retrain --steps: times the server's learning rate; else 2.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="continue: more rounds, a share of those so far; else 0.1.")
    ] = None,
    require: Annotated[
        float | None, typer.Option(help="The share of devices that must answer, or all stays as it is; else 0.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and do nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a request that was interrupted.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Give up a request that waits or was interrupted.")
    ] = False,
    wait: Annotated[
        float, typer.Option(help="On a network: wait so many seconds for the server to carry it out.")
    ] = 0.0,
    folder: Folder = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Forget users: rebuild the model as if they had never taken part, and erase what is left of them.

    The old model stays in service until the new one is complete. Stop it at any time and go on with --resume. Where the
    devices are on a network, the request is queued and the server carries it out before its next round.
    """
    who = {"--users": users, "--users-file": users_file, "--malicious": malicious or None}
    settings = {
        "speedup": speedup, "calibration": calibration, "granularity": granularity, "replay": replay,
        "parts": parts, "private": private, "stride": stride, "limit": limit, "steps": steps, "fraction": fraction,
        "lr-scale": lr_scale, "share": share,
    }  # fmt: skip
    how = {"--method": method} | {f"--{name}": value for name, value in settings.items()}
    _check(who, {**how, "--dry-run": dry_run or None}, resume, abandon)
    asked = _method(how)
    with closing(looked_at(run) if on_network(run) else opened(run, folder, Compute(workers=workers))[0]) as fed:
        if abandon:
            _abandon(fed, run, as_json)
            return
        if isinstance(fed, Service) and resume:
            raise ConfigError("This run is on a network.", "Its server goes on with the request as soon as it runs.")
        if resume:
            request = _interrupted(fed, run)
            leavers, chosen = list(request.users), build_method(**request.method)
        else:
            leavers, chosen = _leavers(fed, who), asked or default_method(fed.model)
        if dry_run:
            _estimate(fed, run, leavers, chosen, as_json)
        elif isinstance(fed, Service):
            queue(fed, run, leavers, chosen, require, wait, as_json)
        else:
            _forget(fed, run, leavers, chosen, require, as_json)


def _check(who: Given, rest: Given, resume: bool, abandon: bool) -> None:
    """Refuse what cannot be meant together."""
    named = [name for name, value in who.items() if value is not None]
    others = named + [name for name, value in rest.items() if value is not None]
    if resume and abandon:
        raise ConfigError("--resume and --abandon exclude each other.", "Give one: finish the request, or give it up.")
    if (resume or abandon) and others:
        raise ConfigError(
            f"{others[0]} was given with {'--resume' if resume else '--abandon'}.",
            f"The request that was interrupted has its users and its method: leave {', '.join(others)} out.",
        )
    if "--malicious" in named and len(named) > 1:
        raise ConfigError(
            f"{named[0]} was given with --malicious, which stands for the malicious users alone.", "Give one of them."
        )
    if not (named or resume or abandon):
        raise ConfigError("The request names nobody.", "Give --users 17,23, --users-file FILE or --malicious.")


def _method(how: Given) -> Method | None:
    """The method that was asked for, with the settings that were given; None if nothing was said."""
    if all(value is None for value in how.values()):
        return None
    name = how["--method"] or "fru"
    if name not in METHODS:
        raise one_of("method", name, list(METHODS))
    given = {key: value for key, value in how.items() if key != "--method" and value is not None}
    for key, value in given.items():
        able = [other for other, method in METHODS.items() if _field(key) in _settings_of(method)]
        if name not in able:
            raise ConfigError(
                f"{key} is {value}, but method {name!r} has no such setting.",
                f"Leave it out, or choose --method {' or '.join(able)}.",
            )
    return build_method(name, **{_field(key): value for key, value in given.items()})


def _field(option: str) -> str:
    """The setting of a method that an option is for."""
    return option.removeprefix("--").replace("-", "_")


def _settings_of(method: type[Method]) -> list[str]:
    return [field.name for field in fields(method)]


def _leavers(fed: Coordinator, who: Given) -> list[UserId]:
    """The users that were named, as the data has them."""
    if who["--malicious"]:
        if fed.settings.attack is None:
            raise ConfigError("This run has no malicious users (any more).", "Name the users: --users 17,23.")
        return list(fed.settings.attack.users)
    return [typed(given, fed.members) for given in _named(who)]


def _named(who: Given) -> list[str]:
    """The ids that were given, as they were typed."""
    ids = split_ids(who["--users"] or "")
    if who["--users-file"] is not None:
        ids += _lines(who["--users-file"])
    if not any(ids):
        raise ConfigError("The request names nobody.", "Give at least one user id.")
    return [given for given in ids if given]


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "Give a text file with one user id a line.") from error


def _estimate(fed: Coordinator, run: Path, leavers: Sequence[UserId], method: Method, as_json: bool) -> None:
    cost = fed.estimate(leavers, method)
    if as_json:
        asked = {"run": str(run), "dry_run": True, "users": len(set(leavers)), "method": cost.method}
        show.print_json({**asked, "estimate": cost.to_dict()})
        return
    show.out.print(str(cost), soft_wrap=True)
    show.out.print("Nothing was changed. The same command without --dry-run does it.", soft_wrap=True)


def _forget(
    fed: Coordinator, run: Path, leavers: Sequence[UserId], method: Method, require: float | None, as_json: bool
) -> None:
    cost = fed.estimate(leavers, method)
    last = fed.rounds + (0 if cost.first_round is None else method.more_rounds(fed.rounds))
    try:
        with show.rounds_bar(last - cost.rounds, last, quiet=as_json) as on_round:
            receipt = fed.forget(leavers, method, require=require, on_round=on_round)
    except KeyboardInterrupt as stop:
        if (request := fed.waiting) is None:
            raise
        if request.trajectory <= fed.settings.trajectory:
            raise StoppedError(
                "Interrupted after the new model went into service: the users are forgotten.",
                f"What is left of them is removed when the run is next opened: fedforget receipts {run}",
            ) from stop
        go_on = f"fedforget forget {run} --resume"
        hint = f"Go on: {go_on}\nGive it up: fedforget forget {run} --abandon"
        raise StoppedError("Interrupted. The old model is still in service, nobody is forgotten yet.", hint) from stop
    if as_json:
        show.print_json({"run": str(run), "rounds": fed.rounds, "receipt": receipt.to_dict(), "salt": receipt.salt})
    else:
        _show(receipt, run)


def _show(receipt: Receipt, run: Path) -> None:
    show.out.print(str(receipt), soft_wrap=True)
    show.out.print(f"  salt       {receipt.salt}", soft_wrap=True)
    show.out.print(
        "The salt is shown this once and stored nowhere; it is needed to recognise a user in the receipt.\n"
        f"The receipt is in {run / 'receipts' / receipt.request}.json. Next:\n"
        f"  fedforget receipts {run} --check USER --salt {receipt.salt}\n"
        f"  fedforget evaluate {run}\n"
        f"  fedforget train --out {run} --rounds N",
        soft_wrap=True,
    )


def _interrupted(fed: Coordinator, run: Path) -> Request:
    """The request that waits to be finished."""
    queued = fed.queue.waiting() if isinstance(fed, Service) else []
    if (request := fed.waiting or next(iter(queued), None)) is None:
        raise RunError(f"No request was interrupted in {run}.", f"What is done is listed by: fedforget receipts {run}")
    return request


def _abandon(fed: Coordinator, run: Path, as_json: bool) -> None:
    request = _interrupted(fed, run)
    fed.abandon_forgetting()
    if as_json:
        show.print_json({"run": str(run), "abandoned": request.id})
    else:
        show.out.print(f"Request {request.id} is given up: its {len(request.users)} users stay.", soft_wrap=True)
