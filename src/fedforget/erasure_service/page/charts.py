"""Chart: curves over rounds, laid out for an inline SVG. The page's style sheet colours it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from fedforget.erasure_service.status import Accuracy

WIDTH, HEIGHT = 400, 210
LEFT, RIGHT, TOP, BOTTOM = 38, 12, 12, 34
#: Most labels of an axis.
MOST_LABELS = 5
#: Curves that are drawn, if they were measured; otherwise the first one.
DRAWN = ("sampled HR", "sampled NDCG", "full NDCG")
NAMES = {"hr": "HR", "ndcg": "NDCG", "recall": "recall"}


@dataclass(frozen=True)
class Tick:
    """A label of an axis and its place."""

    place: float
    label: str


@dataclass(frozen=True)
class Curve:
    """A curve with its name; ``points`` are places in the picture."""

    name: str
    points: Sequence[tuple[float, float]]
    newest: str

    @property
    def path(self) -> str:
        return " ".join(f"{x:g},{y:g}" for x, y in self.points)


@dataclass(frozen=True)
class Chart:
    """The accuracy over rounds, as curves and as a table."""

    title: str
    description: str
    curves: Sequence[Curve]
    x: Sequence[Tick]
    y: Sequence[Tick]
    columns: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def accuracy_chart(measured: Sequence[Accuracy]) -> Chart | None:
    """The accuracy over rounds; None if it was never measured."""
    if not measured:
        return None
    values = [_named(one) for one in measured]
    names = list(dict.fromkeys(name for one in values for name in one))
    drawn = [name for name in names if name.startswith(DRAWN)] or names[:1]
    rounds = [one.round for one in measured]
    last = max(1, *rounds)
    ticks = _ticks(max((one[name] for one in values for name in drawn if name in one), default=0.0))
    top = ticks[-1]

    def across(round_: float) -> float:
        return round(LEFT + round_ / last * (WIDTH - LEFT - RIGHT), 1)

    def up(value: float) -> float:
        return round(HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM), 1)

    curves = [
        Curve(
            name,
            [(across(at), up(one[name])) for at, one in zip(rounds, values, strict=True) if name in one],
            next(f"{one[name]:.3f}" for one in reversed(values) if name in one),
        )
        for name in drawn
    ]
    newest = ", ".join(f"{curve.name} {curve.newest}" for curve in curves)
    return Chart(
        title="Accuracy over rounds",
        description=f"From round {min(rounds)} to round {max(rounds)}. At round {rounds[-1]}: {newest}.",
        curves=curves,
        x=[Tick(across(at), str(at)) for at in _rounds(last)],
        y=[Tick(up(value), f"{value:g}") for value in ticks],
        columns=names,
        rows=[
            (at, [f"{one[name]:.4f}" if name in one else "" for name in names])
            for at, one in zip(reversed(rounds), reversed(values), strict=True)
        ],
    )


def _named(one: Accuracy) -> dict[str, float]:
    """The metrics of an evaluation by their names; those of the sampled protocol first."""
    parts: tuple[tuple[str, Mapping[str, float]], ...] = (("sampled", one.sampled), ("full", one.full))
    found = {}
    for protocol, values in parts:
        for name, value in values.items():
            found[f"{protocol} {NAMES.get(name, name)}@{one.k}"] = value
    return found


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to one that is at least ``most``."""
    if not most > 0:
        return [0.0, 1.0]
    rough = most / (MOST_LABELS - 1)
    size = 10 ** floor(log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * 0.999)
    return [round(step * place, 10) for place in range(ceil(most / step * 0.999) + 1)]


def _rounds(last: int) -> list[int]:
    """Round numbers of rounds up to the last one."""
    step = max(1, int(_ticks(last)[1]))
    return list(range(0, last + 1, step))
