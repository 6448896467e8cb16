"""``fedforget quickstart``: the whole way in half a minute, to see it work before reading anything."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.data import Interactions, load
from fedforget.errors import DataError
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.ranking import Scorer
from fedforget.federation import Federation
from fedforget.models import LightGCN

SYNTHETIC: dict[str, Any] = {"users": 1000, "items": 1500, "mean_items": 60.0}


def quickstart(
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/quickstart-DATA if not given.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to train.")] = 200,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Train a federated LightGCN on MovieLens-100k (or made-up data when offline) and show how good it is."""
    show.tell_if_compiling()
    data, source = _data(folder)
    train, test = data.split(test=0.2, seed=0)
    source |= {"test": 0.2, "split_seed": 0}
    if not as_json:
        show.notes.print(f"{source['name']}: {data}, every user one client; a tenth of them train in each round.")
    out = out or Path("runs") / f"quickstart-{source['name']}"
    fed = Federation(train, LightGCN(), seed=0, path=out, source=source)
    workers = fed.devices.workers
    untrained = fed.model.init_public(train.n_items, seed=0)
    private = fed.model.init_private(train.user_keys, seed=0)
    popularity = np.bincount(train.indices, minlength=train.n_items).astype(np.float32)
    scorers: dict[str, Scorer] = {
        "untrained": lambda user: fed.model.score(private[user], untrained, train.items_of(user)),
        "most popular": lambda _: popularity,
    }
    rows = {label: evaluate(score, train, test, Ranking(), workers) for label, score in scorers.items()}
    before = fed.rounds
    started = time.perf_counter()
    with show.rounds_bar(before, rounds, quiet=as_json) as on_round:
        fed.fit(rounds=max(rounds, before), on_round=on_round)
    seconds = time.perf_counter() - started
    rows["Fed-LightGCN"] = fed.evaluate(test)
    user = train.user_ids.tolist()[0]
    if as_json:
        show.print_json(
            {
                "data": source["name"],
                "rounds": fed.rounds,
                "seconds": seconds,
                "results": {label: result.to_dict() for label, result in rows.items()},
                "recommendations": {"user": user, "items": [item for item, _ in fed.recommend(user)]},
            }
        )
        return
    show.out.print(show.evaluation_table(rows, title=f"{source['name']}, {train.n_users:,} clients"))
    done = f"{fed.rounds - before} rounds in {seconds:.0f} s" if fed.rounds > before else "the run was finished before"
    best = ", ".join(str(item) for item, _ in fed.recommend(user, k=5))
    show.out.print(f"{done}; saved in {out}. For user {user}: items {best}.", soft_wrap=True)
    show.out.print(f"Next: fedforget recommend {out} --user {user}   fedforget evaluate {out}", soft_wrap=True)


def _data(folder: Path | None) -> tuple[Interactions, dict[str, Any]]:
    """MovieLens-100k, or synthetic data where it is neither here nor within reach."""
    try:
        return load("ml-100k", folder=folder), {"name": "ml-100k", "options": {}}
    except DataError as error:
        show.notes.print(f"[yellow]MovieLens-100k is out of reach, so made-up data takes its place.[/] {error.problem}")
        return load("synthetic", **SYNTHETIC), {"name": "synthetic", "options": SYNTHETIC}
