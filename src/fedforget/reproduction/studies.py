"""Study: one of the paper's tables or figures, as the cells that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from fedforget.device.sampling import KINDS
from fedforget.errors import one_of
from fedforget.experiments.ways import WAYS
from fedforget.reproduction.cell import Cell, Setting, Treatment

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
BETAS = (0.25, 0.5, 1.0)
LAMBDAS = (0.05, 0.1, 0.25, 0.5, 0.75)
SELECTIONS = ("importance", "random")


@dataclass(frozen=True)
class Choices:
    """On what a study is run; where nothing is chosen, as in the paper."""

    datasets: Sequence[str] = ()
    models: Sequence[str] = ("lightgcn", "ncf")
    malicious: Sequence[float] = ()
    seeds: Sequence[int] = (0, 1, 2)
    rounds: int = 200

    def otherwise(self, datasets: Sequence[str], malicious: Sequence[float]) -> Choices:
        """The same, with these where nothing was chosen."""
        return replace(self, datasets=self.datasets or datasets, malicious=self.malicious or malicious)

    def settings(self) -> list[Setting]:
        """Every federation of the choice."""
        return [
            Setting(dataset, model, malicious, seed, self.rounds)
            for dataset, model, malicious, seed in product(self.datasets, self.models, self.malicious, self.seeds)
        ]


#: What each preset chooses: the paper's evaluation, or a look at the same in minutes.
PRESETS = {
    "paper": Choices(),
    "quick": Choices(datasets=("ml-100k",), models=("lightgcn",), malicious=(0.2,), seeds=(0,), rounds=20),
}
BOTH = ("ml-100k", "steam-200k")


@dataclass(frozen=True)
class Study:
    """A table or figure. A timed one is measured with nothing beside it, all ways of a federation in one run."""

    title: str
    cells: Callable[[Choices], list[Cell]]
    timed: bool = False


def recovery_cells(choices: Choices) -> list[Cell]:
    """Table 1, and its times: every way to recover, on both data sets, for 10% and 20% malicious users."""
    choices = choices.otherwise(BOTH, (0.1, 0.2))
    return [Cell(setting, Treatment(way)) for setting in choices.settings() for way in WAYS]


def storage_cells(choices: Choices) -> list[Cell]:
    """What the logs of the paper and ours take: of the federations of table 1, the first seed only."""
    first = replace(choices, seeds=choices.seeds[:1]).otherwise(BOTH, (0.1,))
    return [Cell(s, Treatment(way)) for s in first.settings() for way in ("fru-all", "fru-server", "fru-device")]


def alpha_cells(choices: Choices) -> list[Cell]:
    """How many rows the paper's log keeps, by importance or at random, with Retrain to compare."""
    choices = choices.otherwise(BOTH[:1], (0.1,))
    treatments = [Treatment("retrain"), *(selected(alpha, how) for alpha in ALPHAS for how in SELECTIONS)]
    return [Cell(setting, treatment) for setting in choices.settings() for treatment in dict.fromkeys(treatments)]


def selected(alpha: float, how: str) -> Treatment:
    """The paper's FRU with a share of the rows; all of them is the way without selection."""
    if alpha == 1:
        return Treatment("fru-all")
    own = WAYS["fru-server"].log
    return (
        Treatment("fru-server") if (own.alpha, own.selection) == (alpha, how) else Treatment("fru-server", alpha, how)
    )


def lambda_cells(choices: Choices) -> list[Cell]:
    """How long devices train in a replayed round, for the paper's calibration and ours, with Retrain to compare."""
    choices = choices.otherwise(BOTH[:1], (0.1,))
    treatments = [Treatment("retrain"), *(shortened(way, speedup) for way in REPLAYS for speedup in LAMBDAS)]
    return [Cell(setting, treatment) for setting in choices.settings() for treatment in treatments]


#: The ways whose λ is varied.
REPLAYS = ("fru-server", "fru-device", "fru-logged")


def shortened(way: str, speedup: float) -> Treatment:
    """A way with another λ, or the way itself if that is its own."""
    own = getattr(WAYS[way].method, "speedup")  # noqa: B009  (every one of REPLAYS has a λ)
    return Treatment(way) if own == speedup else Treatment(way, speedup=speedup)


def beta_cells(choices: Choices) -> list[Cell]:
    """Every sampler with fewer and fewer negatives, without an attack."""
    choices = replace(choices.otherwise(BOTH[:1], ()), malicious=(0.0,))
    return [
        Cell(replace(setting, sampler=sampler, beta=beta), Treatment("attacked"))
        for setting in choices.settings()
        for sampler in KINDS
        for beta in BETAS
    ]


STUDIES: dict[str, Study] = {
    "table-1": Study("Recovery from an attack", recovery_cells),
    "speed": Study("Time of recovery", recovery_cells, timed=True),
    "alpha": Study("How many rows the log keeps, and which", alpha_cells),
    "beta": Study("Negative samplers without an attack", beta_cells),
    "lambda": Study("Length of a replayed round", lambda_cells, timed=True),
    "storage": Study("Size of the log on a device", storage_cells),
}


def chosen_studies(name: str) -> dict[str, Study]:
    """A study by its name, or all of them."""
    if name != "all" and name not in STUDIES:
        raise one_of("study", name, [*STUDIES, "all"])
    return dict(STUDIES) if name == "all" else {name: STUDIES[name]}
