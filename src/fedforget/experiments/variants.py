"""Variants: the unlearning methods that are compared, each with the device log it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedforget.errors import ConfigError, unknown_choice
from fedforget.models import Recommender
from fedforget.protocol.log import Log
from fedforget.server.unlearning import FRU, Continue, FedRemove, Method, Retrain, condensed_retrain
from fedforget.server.unlearning.fru import STRIDE


@dataclass(frozen=True)
class Variant:
    """An unlearning method (None: no unlearning), the device log it runs on, and its description.

    ``method_for`` builds the method for a given model, where it depends on the model.
    """

    label: str
    description: str
    method: Method | None
    log: Log = field(default_factory=Log)
    method_for: Callable[[Recommender], Method] | None = None

    def for_model(self, model: Recommender) -> Variant:
        """The variant with all settings that depend on the model filled in."""
        if self.method is None:
            return self
        return replace(self, method=(self.method_for(model) if self.method_for else self.method).for_model(model))


#: All variants by name, in the order of every table.
VARIANTS: dict[str, Variant] = {
    "attacked": Variant("Attacked", "No unlearning: the model trained together with the malicious users.", None),
    "continue": Variant(
        "Continue", "Training continues without the malicious users for a tenth of the rounds.", Continue()
    ),
    "fedremove": Variant(
        "FedRemove",
        "The stored updates of the remaining users are summed again without the others, without any training.",
        FedRemove(),
        Log("float32", "all"),
    ),
    "retrain": Variant(
        "Retrain", "Training from scratch without the malicious users. This is the reference.", Retrain()
    ),
    "retrain-condensed": Variant(
        "Retrain, steps",
        "Training from scratch in fewer steps: 10 past rounds of LightGCN or 2 of NCF are combined into one; "
        "Fed-iALS is trained in 20 rounds with all devices.",
        Retrain(stride=STRIDE),
        method_for=condensed_retrain,
    ),
    "fru-all": Variant(
        "FRU, w/o IUS",
        "The paper's FRU without importance-based update selection: devices store every row of every update.",
        FRU(calibration="server", parts="all", private="fresh"),
        Log("float32", "all"),
    ),
    "fru-server": Variant(
        "FRU, paper",
        "The paper's FRU: every round is replayed with a tenth of the epochs (λ = 0.1), and the server scales the new "
        "updates to the norms of the stored ones. Devices store half of the rows of every update.",
        FRU(calibration="server", parts="all", private="fresh"),
        Log("float32", "importance", 0.5),
    ),
    "fru-device": Variant(
        "FRU, device",
        "FRU with λ = 0.1 where devices scale their own updates, so their logs hold one norm for each row. 10 past "
        "rounds of LightGCN or 2 of NCF are replayed at once. This is the default of forget().",
        FRU(),
    ),
    "fru-logged": Variant(
        "FRU, logged",
        "As FRU, device, but with λ = 0.05 and trained on the items named in the log instead of new samples.",
        FRU(replay_fraction=0.05, replay="logged"),
    ),
}


def select_variants(names: Sequence[str]) -> dict[str, Variant]:
    """The named variants in the usual order."""
    for name in names:
        if name not in VARIANTS:
            raise unknown_choice("method", name, list(VARIANTS))
    if not names:
        raise ConfigError("No method is named.", f"Choose from {', '.join(VARIANTS)}.")
    return {name: variant for name, variant in VARIANTS.items() if name in names}


def variants_for(model: Recommender, variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """The variants that apply to a model. FRU shortens local training, so it does not apply to closed-form models."""
    return {
        name: variant.for_model(model)
        for name, variant in variants.items()
        if variant.method is None or not (model.closed_form and variant.method.shortens_training())
    }


def needs_whole_updates(variants: Mapping[str, Variant]) -> bool:
    """Whether any variant needs logs that hold whole updates."""
    return any(variant.log.whole_updates for variant in variants.values())
