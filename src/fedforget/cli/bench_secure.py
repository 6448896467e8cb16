"""``fedforget bench secure``: the cost of secure aggregation."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.flower import refuse_without_flower
from fedforget.data import load
from fedforget.errors import ConfigError
from fedforget.experiments.plots import in_bytes
from fedforget.server.presets import ROUNDS


def secure(
    cohorts: Annotated[str, typer.Option(help="Numbers of devices in a sum, comma-separated.")] = "10,100,1000,10000",
    items: Annotated[str, typer.Option(help="Sizes of the catalogue, comma-separated.")] = "1682,10000,100000",
    network: Annotated[
        bool, typer.Option("--network", help="Time rounds and an erasure on Flower instead, plain and secure.")
    ] = False,
    accuracy: Annotated[
        bool,
        typer.Option("--accuracy", help="Compare the accuracy of training and forgetting instead, in a simulation."),
    ] = False,
    model: Annotated[
        str, typer.Option(help="The model with --network; models, comma-separated, with --accuracy.")
    ] = "lightgcn",
    data: Annotated[
        str, typer.Option(help="Data set, by name or file, with --network or --accuracy (comma-separated).")
    ] = "ml-100k",
    seeds: Annotated[int, typer.Option(help="Number of seeds, with --accuracy.")] = 3,
    leavers: Annotated[
        str, typer.Option(help="Numbers of users to forget, the heaviest, comma-separated, with --accuracy.")
    ] = "1,50",
    devices: Annotated[int, typer.Option(help="Number of nodes, with --network.")] = 3,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of training: default 20 with --network, 100 with --accuracy.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Measure what secure aggregation costs a device, the server and the network, against plain updates."""
    refuse_without_flower()
    from fedforget.experiments.benchmark_secure import bench_secure, bench_secure_network
    from fedforget.experiments.benchmark_secure_accuracy import bench_secure_accuracy

    show.tell_if_compiling()

    def say(line: str) -> None:
        show.notes.print(line, markup=False)

    if network:
        name = opt.named_models(model)[0]
        result = bench_secure_network(load(data, folder=folder), name, devices, rounds or 20, say)
        table = _network_table(result)
    elif accuracy:
        datasets = {name: load(name, folder=folder) for name in data.split(",")}
        counts = _numbers(leavers, least=1)
        result = bench_secure_accuracy(datasets, opt.named_models(model), seeds, rounds or ROUNDS, counts, say)
        table = _accuracy_table(result)
    else:
        result = bench_secure(_numbers(cohorts), _numbers(items), say)
        table = _cost_table(result)
    show.result(result, as_json, table)


def _network_table(result: dict[str, Any]) -> Table:
    columns = ["aggregation", "seconds a round", "seconds of an erasure", "communication rounds"]
    lines = [
        (
            kind,
            f"{result[kind]['round_seconds']:.1f}",
            f"{result[kind]['erasure_seconds']:.1f}",
            str(result[kind]["communication_rounds"]),
        )
        for kind in ("plain", "secure")
    ]
    title = f"Secure against plain on Flower, {result['devices']} nodes: erasure {result['erasure_ratio']:.2f}x"
    return show.table(columns, lines, title=title)


def _accuracy_table(result: dict[str, Any]) -> Table:
    columns = ["data", "model", "forgotten", "after", "plain", "secure"]
    rows: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        what = tuple(str(row[name]) for name in ("data", "model", "leavers", "state"))
        rows.setdefault(what, {})[row["kind"]] = row
    lines = [(*what, *(_percent(kinds[kind]["full"]) for kind in ("plain", "secure"))) for what, kinds in rows.items()]
    title = f"Full HR / NDCG of plain updates and of sums, {result['rounds']} rounds, mean of {result['seeds']} seeds"
    return show.table(columns, lines, title=title)


def _percent(metrics: dict[str, Any]) -> str:
    return f"{100 * metrics['hr']['mean']:.1f}/{100 * metrics['ndcg']['mean']:.1f}"


def _cost_table(result: dict[str, Any]) -> Table:
    columns = ["devices", "items", "device ms", "server ms", "sent", "received", "plain sent"]
    rows = [
        (
            f"{row['cohort']:,}",
            f"{row['items']:,}",
            f"{1000 * row['device_seconds']:.1f}",
            f"{1000 * row['server_seconds_per_device']:.1f}",
            in_bytes(row["bytes_up"]),
            in_bytes(row["bytes_down_extra"]),
            in_bytes(row["plain_bytes_up"]),
        )
        for row in result["rows"]
    ]
    return show.table(columns, rows, title="Cost of one device in one secure sum, beside training and the model")


def _numbers(text: str, least: int = 3) -> list[int]:
    """Whole numbers, separated by commas."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a list of numbers.", "Give whole numbers, separated by commas.") from error
    if min(numbers) < least:
        raise ConfigError(f"{min(numbers)} is too small.", f"Give numbers from {least} on.")
    return numbers
