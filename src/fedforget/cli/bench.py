"""``fedforget bench``: benchmarks of speed, accuracy, unlearning and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.bench_accuracy import accuracy
from fedforget.cli.bench_secure import secure
from fedforget.cli.bench_service import service
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.flower import refuse_without_flower
from fedforget.cli.recovery import recovery_table
from fedforget.data import load
from fedforget.errors import ConfigError
from fedforget.experiments.benchmark_engine import bench_engine, bench_memory
from fedforget.experiments.plots import in_bytes
from fedforget.experiments.recovery import RecoverySettings, bench_unlearn
from fedforget.experiments.variants import VARIANTS, select_variants
from fedforget.models import MODELS

QUICK_ROUNDS = 20
Data = Annotated[str, typer.Option(help="Data set, by name or file.")]

app = typer.Typer(no_args_is_help=True, help="Benchmarks of speed, accuracy, unlearning and memory.")
app.command()(accuracy)
app.command()(secure)
app.command()(service)


@app.command()
def engine(
    models: Annotated[str, typer.Option(help="Models, comma-separated.")] = ",".join(MODELS),
    data: Data = "ml-100k",
    preset: opt.BenchPreset = "default",
    skip_growth: Annotated[bool, typer.Option("--skip-growth", help="Skip the growth with users.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Time a federated round: against a plain loop, against the machine's peak, and as users grow."""
    show.tell_if_compiling()
    result = bench_engine(
        load(data, folder=folder),
        opt.named_models(models),
        preset=preset,
        growth=not skip_growth,
        quick=quick,
        say=lambda line: None if as_json else show.notes.print(line),
    )
    rows = [
        (
            name,
            f"{1000 * row['round_seconds']:.0f} ms",
            f"{row['plain_loop_round_seconds']:.2f} s",
            f"{row['speedup']:.0f}x",
            f"{row['gflops']:.0f}",
            f"{row['utilization']:.0%}",
        )
        for name, row in result["models"].items()
    ]
    columns = ["model", "round", "plain loop", "speed-up", "GFLOP/s", "of the peak"]
    tables = [show.table(columns, rows, title=f"A round, preset {preset}")]
    if "growth" in result:
        growth = result["growth"]
        names = ("users", "round_seconds", "add_seconds", "recommend_all_seconds")
        times = zip(*(growth[name] for name in names), strict=True)
        points = [
            (f"{users:,}", f"{1000 * seconds:.1f} ms", f"{1000 * add:.1f} ms", f"{best:.2f} s")
            for users, seconds, add, best in times
        ]
        caption = f"{growth['ratio']:.2f}x; {growth['bytes_per_user']:.0f} bytes per additional user"
        tables.append(
            show.table(
                ["users", "round", "add 100 users and items", "recommend to all"],
                points,
                title="A round of 100 clients as users grow",
                caption=caption,
            )
        )
    show.result(result, as_json, *tables)


@app.command()
def unlearn(
    models: Annotated[str | None, typer.Option(help="Models, comma-separated; default lightgcn,ncf,ials.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; default 200.")] = None,
    malicious: Annotated[float, typer.Option(help="Fraction of malicious users.")] = 0.2,
    gamma: Annotated[float, typer.Option(help="γmax, the strength of the attack.")] = 4.0,
    preset: opt.BenchPreset = "default",
    seed: opt.BenchSeed = 0,
    methods: Annotated[str, typer.Option(help="Methods, comma-separated.")] = ",".join(VARIANTS),
    repeats: Annotated[int, typer.Option(help="Repetitions of each method; the median time counts.")] = 1,
    data: Data = "ml-100k",
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_ROUNDS} rounds of lightgcn, unless others are given.")
    ] = False,
    work: Annotated[
        Path | None, typer.Option(help="Folder for logs (about 20 GB for ncf); default a temporary folder.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Train under attack, forget the malicious users with every method, and compare accuracy, time and log size."""
    names = opt.named_models(models or ("lightgcn" if quick else "lightgcn,ncf,ials"))
    variants = list(select_variants([name for name in methods.split(",") if name]))
    rounds = rounds if rounds is not None else QUICK_ROUNDS if quick else 200
    settings = RecoverySettings(rounds, malicious, gamma, seed, preset)
    show.tell_if_compiling()
    result = bench_unlearn(
        load(data, folder=folder),
        names,
        settings,
        variants=variants,
        repeats=repeats,
        work=work,
        say=lambda line: show.notes.print(line, markup=False),
    )
    title = f"on {data}, {rounds} rounds, {malicious:.0%} malicious, γmax {gamma:g}, seed {seed}"
    tables = [recovery_table(row["methods"], f"{name} {title}") for name, row in result["models"].items()]
    show.result(result, as_json, *tables)


@app.command()
def memory(
    users: Annotated[int, typer.Option("--num-users", help="Number of simulated users; 1% in a round.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Rounds before and after the second measurement.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Measure the memory of a simulation with many users and logs on disk."""
    if users < 1000 or rounds < 1:
        raise ConfigError(f"num-users is {users}, rounds is {rounds}.", "Give at least 1000 users and 1 round.")
    show.tell_if_compiling()
    result = bench_memory(users, rounds)
    kinds = {"resident": "resident_bytes", "without mapped files": "allocated_bytes", "peak": "peak_bytes"}
    rows = [(point["after"], *(in_bytes(point[key]) for key in kinds.values())) for point in result["points"]]
    growth = result["allocated_by_later_rounds"] / rounds / 1e3
    title = f"Memory with {users:,} users, {result['cohort']:,} in a round, logs on disk"
    caption = f"at most {result['bytes_per_user']:,.0f} bytes per user; each later round adds {growth:,.0f} kB"
    show.result(result, as_json, show.table(["after", *kinds], rows, title=title, caption=caption))


@app.command()
def flower(
    models: Annotated[str, typer.Option(help="Models, comma-separated.")] = "lightgcn,ncf",
    data: Data = "ml-100k",
    devices: Annotated[int, typer.Option(help="Number of nodes, with one user each.")] = 3,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; default 5, or 40 with --erasure.")] = None,
    erasure: Annotated[
        bool, typer.Option("--erasure", help="Time FRU, condensed Retrain and Retrain for the first model.")
    ] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Measure a round on a network of processes on this machine: seconds, and bytes per device."""
    refuse_without_flower()
    from fedforget.experiments.benchmark_network import bench_erasure, bench_flower

    rounds = rounds if rounds is not None else 40 if erasure else 5
    if rounds < 2 or devices < 1:
        raise ConfigError(f"rounds is {rounds}, devices is {devices}.", "Give at least 2 rounds and 1 device.")
    names = opt.named_models(models)
    show.tell_if_compiling()
    loaded, say = load(data, folder=folder), lambda line: show.notes.print(line, markup=False)
    if erasure:
        result = bench_erasure(loaded, names[0], devices, rounds, say)
        columns = ["method", "communication rounds", "seconds", "speed-up"]
        rows = [
            (name, str(row["rounds"]), f"{row['seconds']:.1f}", f"{row['speedup']:.1f}x")
            for name, row in result["erasure"].items()
        ]
        title = f"Forgetting a user of round 1 after {rounds} rounds on Flower, {devices} nodes"
    else:
        result = bench_flower(loaded, names, devices, rounds, say)
        sizes = {"to a device": "down", "back": "up", "replay, back": "replay_up", "with stored": "replay_stored_up"}
        times = {"first round": "first_round_seconds", "round": "round_seconds", "replayed": "replay_seconds"}
        columns = ["model", *sizes, *times]
        rows = [
            (name, *(in_bytes(row[key]) for key in sizes.values()), *(f"{row[key]:.1f} s" for key in times.values()))
            for name, row in result["models"].items()
        ]
        title = f"A round on Flower, {devices} nodes, {data}"
    show.result(result, as_json, show.table(columns, rows, title=title))
