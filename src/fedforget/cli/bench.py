"""``fedforget bench``: measurements of speed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from fedforget.benchmarks.engine import bench_engine
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.data import load
from fedforget.errors import one_of
from fedforget.models import MODELS

app = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios in one run.")


@app.callback()
def group() -> None:
    """Keep ``engine`` a command of its own."""


@app.command()
def engine(
    models: Annotated[str, typer.Option(help="Which models, separated by commas.")] = ",".join(MODELS),
    data: Annotated[str, typer.Option(help="Which data.")] = "ml-100k",
    skip_growth: Annotated[bool, typer.Option("--skip-growth", help="Leave out the growth with users.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Time a federated round against the plain loop, against the machine, and as users grow."""
    names = models.split(",")
    for name in names:
        if name not in MODELS:
            raise one_of("model", name, sorted(MODELS))
    show.tell_if_compiling()
    result = bench_engine(
        load(data, folder=folder),
        names,
        growth=not skip_growth,
        quick=quick,
        say=lambda line: None if as_json else show.notes.print(line),
    )
    if as_json:
        show.print_json(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    table = Table(title="A round at the paper's settings")
    for name in ("model", "round", "plain loop", "speed-up", "GFLOP/s", "of the peak"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name, row in result["models"].items():
        table.add_row(
            name,
            f"{1000 * row['round_seconds']:.0f} ms",
            f"{row['plain_loop_round_seconds']:.2f} s",
            f"{row['speedup']:.0f}x",
            f"{row['gflops']:.0f}",
            f"{row['utilization']:.0%}",
        )
    show.out.print(table)
    if "growth" in result:
        growth = result["growth"]
        table = Table(title="A round of 100 clients as users grow")
        table.add_column("users", justify="right")
        table.add_column("round", justify="right")
        for users, seconds in zip(growth["users"], growth["round_seconds"], strict=True):
            table.add_row(f"{users:,}", f"{1000 * seconds:.1f} ms")
        table.caption = f"{growth['ratio']:.2f}x; {growth['bytes_per_user']:.0f} bytes for each user more"
        show.out.print(table)
