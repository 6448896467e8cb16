"""``fedforget bench secure``: the cost of secure aggregation."""

from __future__ import annotations

from typing import Annotated

import typer

from fedforget.cli import options as opt
from fedforget.cli import show
from fedforget.cli.data import AsJson, Folder
from fedforget.cli.flower import refuse_without_flower
from fedforget.data import load
from fedforget.errors import ConfigError
from fedforget.experiments.plots import in_bytes


def secure(
    cohorts: Annotated[str, typer.Option(help="Numbers of devices in a sum, comma-separated.")] = "10,100,1000,10000",
    items: Annotated[str, typer.Option(help="Sizes of the catalogue, comma-separated.")] = "1682,10000,100000",
    network: Annotated[
        bool, typer.Option("--network", help="Time rounds and an erasure on Flower instead, plain and secure.")
    ] = False,
    model: Annotated[str, typer.Option(help="The model, with --network.")] = "lightgcn",
    data: Annotated[str, typer.Option(help="Data set, by name or file, with --network.")] = "ml-100k",
    devices: Annotated[int, typer.Option(help="Number of nodes, with --network.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of training, with --network.")] = 20,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Measure what secure aggregation costs a device, the server and the network, against plain updates."""
    refuse_without_flower()
    from fedforget.experiments.benchmark_secure import bench_secure, bench_secure_network

    show.tell_if_compiling()

    def say(line: str) -> None:
        show.notes.print(line, markup=False)

    if network:
        name = opt.named_models(model)[0]
        result = bench_secure_network(load(data, folder=folder), name, devices, rounds, say)
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
        title = f"Secure against plain on Flower, {devices} nodes: erasure {result['erasure_ratio']:.2f}x"
        table = show.table(columns, lines, title=title)
    else:
        result = bench_secure(_numbers(cohorts), _numbers(items), say)
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
        title = "Cost of one device in one secure sum, beside training and the model"
        table = show.table(columns, rows, title=title)
    show.result(result, as_json, table)


def _numbers(text: str) -> list[int]:
    """Whole numbers above 2, separated by commas."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a list of numbers.", "Give whole numbers, separated by commas.") from error
    if min(numbers) < 3:
        raise ConfigError(f"{min(numbers)} is too small.", "Give numbers from 3 on.")
    return numbers
