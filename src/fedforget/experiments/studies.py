"""Studies: the tables and figures of the paper, and the experiments each of them needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from fedforget.errors import unknown_choice
from fedforget.experiments.experiment import Experiment, Setting
from fedforget.experiments.variants import VARIANTS
from fedforget.protocol.sampler import SAMPLERS
from fedforget.server.unlearning import FRU

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
BETAS = (0.25, 0.5, 1.0)
LAMBDAS = (0.05, 0.1, 0.25, 0.5, 0.75)
SELECTIONS = ("importance", "random")
#: Variants whose λ is varied, and variants whose logs are compared.
REPLAYS = ("fru-server", "fru-device", "fru-logged")
LOGS = ("fru-all", "fru-server", "fru-device")
BOTH = ("ml-100k", "steam-200k")
#: A variant, α, selection and λ; None for the variant's own.
Change = tuple[str, float | None, str | None, float | None]


@dataclass(frozen=True)
class Choices:
    """What a study is run on. An empty ``datasets`` or ``malicious`` means the paper's choice for the study."""

    datasets: Sequence[str] = ()
    models: Sequence[str] = ("lightgcn", "ncf")
    malicious: Sequence[float] = ()
    seeds: Sequence[int] = (0, 1, 2)
    rounds: int = 200


PRESETS = {
    "paper": Choices(),
    "quick": Choices(datasets=("ml-100k",), models=("lightgcn",), malicious=(0.2,), seeds=(0,), rounds=20),
}


@dataclass(frozen=True)
class Study:
    """A table or figure. The experiments of a timed study run one after another, with nothing beside them.

    Without ``malicious`` there is no attack, and the fractions of ``Choices`` are ignored. ``samplers`` are negative
    samplers with their β.
    """

    title: str
    datasets: Sequence[str]
    malicious: Sequence[float]
    changes: Sequence[Change]
    timed: bool = False
    first_seed_only: bool = False
    samplers: Sequence[tuple[str, float]] = (("mixed", 0.5),)

    def experiments(self, choices: Choices) -> list[Experiment]:
        """All experiments of the study."""
        malicious = (choices.malicious or self.malicious) if self.malicious else (0.0,)
        seeds = choices.seeds[:1] if self.first_seed_only else choices.seeds
        places = product(choices.datasets or self.datasets, choices.models, malicious, seeds)
        settings = [Setting(*place, choices.rounds, *sampler) for place in places for sampler in self.samplers]
        return [Experiment(setting, *change) for setting in settings for change in dict.fromkeys(self.changes)]


def plain(*names: str) -> list[Change]:
    """Variants as they are."""
    return [(name, None, None, None) for name in names]


def with_alpha(alpha: float, selection: str) -> Change:
    """The paper's FRU with this α and selection; α = 1 is FRU without selection."""
    log = VARIANTS["fru-server"].log
    if alpha == 1:
        return ("fru-all", None, None, None)
    if (log.alpha, log.selection) == (alpha, selection):
        return ("fru-server", None, None, None)
    return ("fru-server", alpha, selection, None)


def with_lambda(name: str, fraction: float) -> Change:
    """A variant with this λ."""
    method = VARIANTS[name].method
    assert isinstance(method, FRU)
    return (name, None, None, None if method.replay_fraction == fraction else fraction)


RETRAIN, EVERY = plain("retrain"), plain(*VARIANTS)
ALPHA = [*RETRAIN, *(with_alpha(alpha, selection) for alpha, selection in product(ALPHAS, SELECTIONS))]
LAMBDA = [*RETRAIN, *(with_lambda(name, fraction) for name, fraction in product(REPLAYS, LAMBDAS))]
EACH_SAMPLER = [*product(list(SAMPLERS), BETAS)]
STUDIES: dict[str, Study] = {
    "table-1": Study("Recovery from an attack", BOTH, (0.1, 0.2), EVERY),
    "speed": Study("Time of unlearning", BOTH, (0.1, 0.2), EVERY, timed=True),
    "alpha": Study("Stored rows: number and selection", BOTH[:1], (0.1,), ALPHA),
    "beta": Study("Negative samplers without an attack", BOTH[:1], (), plain("attacked"), samplers=EACH_SAMPLER),
    "lambda": Study("Local epochs of a replayed round", BOTH[:1], (0.1,), LAMBDA, timed=True),
    "storage": Study("Log size per device", BOTH, (0.1,), plain(*LOGS), first_seed_only=True),
}


def select_studies(name: str) -> dict[str, Study]:
    """The named study, or all of them."""
    if name != "all" and name not in STUDIES:
        raise unknown_choice("study", name, [*STUDIES, "all"])
    return dict(STUDIES) if name == "all" else {name: STUDIES[name]}
