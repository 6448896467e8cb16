"""``fedforget bench``: measurements of speed, of accuracy, of forgetting and of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedforget.benchmarks import memory as memory_bench
from fedforget.benchmarks.engine import bench_engine
from fedforget.benchmarks.unlearn import bench_unlearn
from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.bench_accuracy import accuracy
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.flower import refuse_without_flower
from fedforget.cli.models import named_models
from fedforget.cli.recovery import recovery_table
from fedforget.data import load
from fedforget.errors import ConfigError
from fedforget.experiments.plots import in_bytes
from fedforget.experiments.ways import WAYS, chosen_ways
from fedforget.models import MODELS

QUICK_ROUNDS = 20

app = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios in one run; accuracy; forgetting; and memory.")
app.command()(accuracy)


@app.command()
def engine(
    models: Annotated[str, typer.Option(help="Which models, separated by commas.")] = ",".join(MODELS),
    data: Annotated[str, typer.Option(help="Which data.")] = "ml-100k",
    preset: opt.Preset = "default",
    skip_growth: Annotated[bool, typer.Option("--skip-growth", help="Leave out the growth with users.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Time a federated round against the plain loop, against the machine, and as users grow."""
    names = named_models(models)
    show.tell_if_compiling()
    result = bench_engine(
        load(data, folder=folder),
        names,
        preset=preset,
        growth=not skip_growth,
        quick=quick,
        say=lambda line: None if as_json else show.notes.print(line),
    )
    if as_json:
        show.print_json(result)
    else:
        _show(result)


@app.command()
def unlearn(
    models: Annotated[
        str | None, typer.Option(help="Which models, separated by commas; lightgcn,ncf,ials if not given.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; 200 if not given.")] = None,
    malicious: Annotated[float, typer.Option(help="The share of malicious users.")] = 0.2,
    gamma: Annotated[float, typer.Option(help="γmax, how strongly they push back.")] = 4.0,
    preset: opt.Preset = "default",
    seed: Annotated[int, typer.Option(help="Decides every random draw.")] = 0,
    methods: Annotated[str, typer.Option(help="Which methods, separated by commas.")] = ",".join(WAYS),
    repeats: Annotated[int, typer.Option(help="Forget so often with each method; the median counts.")] = 1,
    data: Annotated[str, typer.Option(help="Which data.")] = "ml-100k",
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_ROUNDS} rounds of lightgcn, unless others are given.")
    ] = False,
    work: Annotated[
        Path | None,
        typer.Option(help="Where logs are kept meanwhile, for ncf some 20 GB; else a temporary folder."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Train under attack, forget the malicious users with every method, and compare accuracy, time and log size."""
    names = named_models(models or ("lightgcn" if quick else "lightgcn,ncf,ials"))
    ways = list(chosen_ways([name for name in methods.split(",") if name]))
    rounds = rounds if rounds is not None else QUICK_ROUNDS if quick else 200
    show.tell_if_compiling()
    result = bench_unlearn(
        load(data, folder=folder),
        names,
        rounds=rounds, malicious=malicious, gamma=gamma, seed=seed, ways=ways, repeats=repeats, preset=preset,
        work=work,
        say=lambda line: show.notes.print(line, markup=False),
    )  # fmt: skip
    if as_json:
        show.print_json(result)
        return
    for name, row in result["models"].items():
        title = f"{name} on {data}, {rounds} rounds, {malicious:.0%} malicious, γmax {gamma:g}, seed {seed}"
        show.out.print(recovery_table(row["methods"], title))


@app.command()
def memory(
    users: Annotated[int, typer.Option(help="Simulated users, a hundredth of them in a round.")] = memory_bench.USERS,
    rounds: Annotated[int, typer.Option(help="Rounds, twice.")] = memory_bench.ROUNDS,
    as_json: AsJson = False,
) -> None:
    """Measure the memory of a simulation with many users and their logs on disk, in training and in forgetting."""
    if users < 1000 or rounds < 1:
        raise ConfigError(f"users is {users}, rounds is {rounds}.", "Give at least 1000 users and 1 round.")
    show.tell_if_compiling()
    result = memory_bench.bench_memory(users, rounds)
    if as_json:
        show.print_json(result)
        return
    table = Table(title=f"Memory with {users:,} users, {result['cohort']:,} of them a round, logs on disk")
    for name in ("after", "held", "without mapped files", "peak until then"):
        table.add_column(name, justify="left" if name == "after" else "right")
    for point in result["points"]:
        table.add_row(point["after"], *(in_bytes(point[f"{kind}_bytes"]) for kind in ("resident", "allocated", "peak")))
    growth = result["allocated_by_later_rounds"] / rounds / 1e3
    table.caption = f"at most {result['bytes_per_user']:,.0f} bytes a user; each later round adds {growth:,.0f} kB"
    show.out.print(table)


@app.command()
def flower(
    models: Annotated[str, typer.Option(help="Which models, separated by commas.")] = "lightgcn,ncf",
    data: Annotated[str, typer.Option(help="Which data.")] = "ml-100k",
    devices: Annotated[int, typer.Option(help="How many nodes, with one user each.")] = 3,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; 5 if not given, 40 with --erasure.")] = None,
    erasure: Annotated[
        bool, typer.Option("--erasure", help="Time an erasure by FRU, condensed Retrain and Retrain; the first model.")
    ] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Measure a round on a real network of processes on this machine: seconds, and bytes for each device."""
    refuse_without_flower()
    from fedforget.benchmarks.network import bench_erasure, bench_flower

    rounds = rounds if rounds is not None else 40 if erasure else 5
    if rounds < 2 or devices < 1:
        raise ConfigError(f"rounds is {rounds}, devices is {devices}.", "Give at least 2 rounds and 1 device.")
    names = named_models(models)
    show.tell_if_compiling()
    loaded, say = load(data, folder=folder), lambda line: show.notes.print(line, markup=False)
    if erasure:
        _show_erasure(bench_erasure(loaded, names[0], devices=devices, rounds=rounds, say=say), as_json)
        return
    result = bench_flower(loaded, names, devices=devices, rounds=rounds, say=say)
    if as_json:
        show.print_json(result)
        return
    table = Table(title=f"A round on Flower, {devices} nodes of one user each, {data}", caption="bytes: a device")
    sizes = {"to a device": "down", "back": "up", "replay, back": "replay_up", "with stored": "replay_stored_up"}
    times = {"first round": "first_round_seconds", "round": "round_seconds", "replayed": "replay_seconds"}
    for name in ("model", *sizes, *times):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name, row in result["models"].items():
        shown = [in_bytes(row[key]) for key in sizes.values()] + [f"{row[key]:.1f} s" for key in times.values()]
        table.add_row(name, *shown)
    show.out.print(table)


def _show_erasure(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(result)
        return
    title = f"Forgetting a user of round 1 after {result['rounds']} rounds on Flower, {result['devices']} nodes"
    table = Table(title=title)
    for name in ("method", "communication rounds", "seconds", "speed-up"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for name, row in result["erasure"].items():
        table.add_row(name, str(row["rounds"]), f"{row['seconds']:.1f}", f"{row['speedup']:.1f}x")
    show.out.print(table)


def _show(result: dict[str, Any]) -> None:
    table = Table(title=f"A round with the settings of preset {result['preset']}")
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
