"""Way: one way to deal with malicious users, with the log that it needs and a sentence on what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedforget.device.log.settings import Log
from fedforget.errors import ConfigError, one_of
from fedforget.models import Recommender
from fedforget.server.unlearning import FRU, Continue, FedRemove, Method, Retrain, condensed_retrain
from fedforget.server.unlearning.fru import STRIDE


@dataclass(frozen=True)
class Way:
    """A method (None: do nothing), the device log one would keep for it in practice, and how to speak of it.

    ``method_for`` gives the method where another one suits each model.
    """

    label: str
    about: str
    method: Method | None
    log: Log = field(default_factory=Log)
    method_for: Callable[[Recommender], Method] | None = None

    def for_model(self, model: Recommender) -> Way:
        """The way as it is gone for a model, with every setting that depends on it."""
        if self.method is None:
            return self
        return replace(self, method=(self.method_for(model) if self.method_for else self.method).for_model(model))


#: Every way that is compared, by name: from doing nothing to the reference, then FRU from the paper's to the quickest.
WAYS: dict[str, Way] = {
    "attacked": Way(
        "Attacked",
        "Nothing is done: the model as it was trained together with the malicious users.",
        None,
    ),
    "continue": Way(
        "Continue",
        "Training goes on without the malicious users for a tenth of the rounds, hoping that what they did washes out.",
        Continue(),
    ),
    "fedremove": Way(
        "FedRemove",
        "The stored updates of those who stay are added up again as they are: no training, but updates that answered a "
        "poisoned model.",
        FedRemove(),
        Log("float32", "all"),
    ),
    "retrain": Way(
        "Retrain",
        "Everything again from the start without the malicious users. The reference: it cannot remember them.",
        Retrain(),
    ),
    "retrain-condensed": Way(
        "Retrain, steps",
        "From the start without the malicious users, but several past rounds at once: 10 of LightGCN and 2 of NCF "
        "start from the same parameters; Fed-iALS is trained anew in 20 rounds with all devices.",
        Retrain(stride=STRIDE),
        method_for=condensed_retrain,
    ),
    "fru-all": Way(
        "FRU, w/o IUS",
        "The paper's FRU without its importance-based update selection: devices keep every row of every update.",
        FRU(calibration="server", parts="all", private="fresh"),
        Log("float32", "all"),
    ),
    "fru-server": Way(
        "FRU, paper",
        "The paper's FRU: every round again in a tenth of the epochs (λ = 0.1); the server gives the cohort's new "
        "update the length of the stored ones, so devices must keep whole updates (half of their rows).",
        FRU(calibration="server", parts="all", private="fresh"),
        Log("float32", "importance", 0.5),
    ),
    "fru-device": Way(
        "FRU, device",
        "FRU with λ = 0.1 where each device gives its own new update the stored lengths: its log holds one number a "
        "row, and old updates never leave it. 10 past rounds of LightGCN and 2 of NCF are replayed at once. The "
        "default of forget().",
        FRU(),
    ),
    "fru-logged": Way(
        "FRU, logged",
        "As before, but trained on the items that the log names instead of newly drawn ones, in a twentieth of the "
        "epochs (λ = 0.05).",
        FRU(speedup=0.05, replay="logged"),
    ),
}


def chosen_ways(names: Sequence[str]) -> dict[str, Way]:
    """These ways in the usual order, each once; an unknown name or none at all is refused."""
    for name in names:
        if name not in WAYS:
            raise one_of("method", name, list(WAYS))
    if not names:
        raise ConfigError("No method is named.", f"Choose from {', '.join(WAYS)}.")
    return {name: way for name, way in WAYS.items() if name in names}


def ways_for(model: Recommender, ways: Mapping[str, Way]) -> dict[str, Way]:
    """Those of these ways that make sense for a model: FRU shortens local training, which a closed form has none of."""
    return {
        name: way.for_model(model)
        for name, way in ways.items()
        if way.method is None or not (model.closed_form and way.method.shortens_training())
    }


def needs_whole_updates(ways: Mapping[str, Way]) -> bool:
    """Whether any of these ways needs logs with whole updates."""
    return any(way.log.whole_updates for way in ways.values())
