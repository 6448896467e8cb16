"""Paper: the figures that the paper prints, to stand beside ours.

They are in ``paper.csv``, a line a figure: its study, where it was measured, the way to recover (by our names: the
paper's FRU is ``fru-server``, its FRU without importance-based update selection ``fru-all``), λ where that is varied,
the metric and the value. Accuracies and shares are in percent, ``seconds`` are those of the paper's machine, ``ratio``
is how many times as fast as Retrain, ``rows`` how many item rows a device stores. What stands empty was not said.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fedforget.errors import DataError


@dataclass(frozen=True)
class Printed:
    """A figure of the paper."""

    study: str
    dataset: str
    model: str
    malicious: float | None
    way: str
    speedup: float | None
    metric: str
    value: float


@cache
def printed() -> tuple[Printed, ...]:
    """Every figure that the paper prints, in the order of the file."""
    text = files("fedforget.reproduction").joinpath("paper.csv").read_text(encoding="utf-8")
    lines = enumerate(csv.DictReader(text.splitlines()), start=2)
    return tuple(_read(line, number) for number, line in lines)


def figure(
    study: str,
    metric: str,
    *,
    dataset: str = "",
    model: str = "",
    malicious: float | None = None,
    way: str = "fru-server",
    speedup: float | None = None,
) -> float | None:
    """One figure, or None where the paper prints none."""
    wanted = (study, dataset, model, malicious, way, speedup, metric)
    return _by_place().get(wanted)


@cache
def _by_place() -> dict[tuple[object, ...], float]:
    return {
        (one.study, one.dataset, one.model, one.malicious, one.way, one.speedup, one.metric): one.value
        for one in printed()
    }


def _read(line: dict[str, str], number: int) -> Printed:
    try:
        return Printed(
            line["study"],
            line["dataset"],
            line["model"],
            _number(line["malicious"]),
            line["way"],
            _number(line["lambda"]),
            line["metric"],
            float(line["value"]),
        )
    except (KeyError, ValueError) as error:
        raise DataError(
            f"Line {number} of the paper's figures cannot be read: {error}.", "Install fedforget again."
        ) from None


def _number(text: str) -> float | None:
    return float(text) if text else None
