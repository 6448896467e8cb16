"""``fedforget audit server``: what a curious server learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder, ItemColumn, Separator, UserColumn, file_options
from fedforget.cli.flower import refuse_without_flower
from fedforget.data import load
from fedforget.server.presets import ROUNDS, configure
from fedforget.server.run_config import RunConfig
from fedforget.simulation.stored_data import stored_parts

#: What each attack uses, as the table says it.
USES = {
    "order": "the order of rows",
    "seed": "draws repeated from the seed",
    "direction": "the direction of rows",
    "length": "the length of rows",
    "sent": "which rows are sent",
    "recurrence": "how often a row is sent",
}


def server(
    data: Annotated[str, typer.Argument(help="Data set, by name or file, or a run folder, whose settings are used.")],
    model: Annotated[str, typer.Option(help="The model; that of the run for a run folder.")] = "ials",
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = ROUNDS,
    num_users: Annotated[int, typer.Option(help="Number of users who are attacked, drawn at random.")] = 200,
    seed: opt.BenchSeed = 0,
    folder: Folder = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    separator: Separator = None,
    as_json: AsJson = False,
) -> None:
    """Play a curious server: how well can it tell a user's own items from others, by what it receives?

    The federation is trained in memory with plain updates. AUC 0.5 is a guess, 1 is certainty.
    """
    refuse_without_flower()
    from fedforget.experiments.audit_server import audit_server

    show.tell_if_compiling()
    parts = stored_parts(Path(data))
    options = file_options(user_column, item_column, separator)
    if parts is None:
        interactions, config = load(data, folder=folder, **options), configure(opt.named_models(model)[0], seed=seed)
    else:
        interactions = parts[0]
        config = replace(RunConfig.load(Path(data) / "config.toml"), engine="simulation")
    result = audit_server(
        interactions, config, rounds, num_users, lambda line: show.notes.print(line, markup=False, soft_wrap=True)
    )
    show.result({"data": data, **result}, as_json, _attacks(result), _sums(result))


def _attacks(result: dict[str, Any]) -> Table:
    columns = ["the server uses", "plain\none round", "all rounds", "secure\none round", "all rounds"]
    places = [(kind, when) for kind in ("plain", "secure") for when in ("one_round", "all_rounds")]
    lines = [(use, *(_auc(result[kind][when].get(name)) for kind, when in places)) for name, use in USES.items()]
    title = f"AUC of telling a user's own items from others: {result['model']}, {result['users']} users"
    return show.table(columns, lines, title=title)


def _sums(result: dict[str, Any]) -> Table:
    columns = ["what the server knows", "AUC", "of somebody else", "precision"]
    sums = {**result["secure"]["sum"]}
    over_rounds = sums.pop("all_rounds")
    lines = [
        (f"one sum over {int(size):,} devices", *_compared(found)) for size, found in sums.items() if found is not None
    ]
    lines.append((f"sums over {over_rounds['devices']:,} in {result['rounds']} rounds", *_compared(over_rounds)))
    erasure = result["secure"]["erasure"]
    lines.append(("sums before and after an erasure", _auc(erasure), "–", _share(erasure["precision"])))
    lines.append(
        (
            "the same, without the cover",
            _auc(erasure["without_cover"]),
            "–",
            _share(erasure["without_cover"]["precision"]),
        )
    )
    return show.table(columns, lines, title="What sums tell, in secure mode")


def _compared(found: dict[str, Any]) -> tuple[str, str, str]:
    return _auc(found), _auc(found["of_another_user"]), _share(found["precision"])


def _auc(found: dict[str, Any] | None) -> str:
    return "–" if found is None or found["auc"] is None else f"{found['auc']:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"
