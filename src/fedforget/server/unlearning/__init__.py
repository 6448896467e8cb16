"""Unlearning: methods, how they are carried out, and the receipt of what was done."""

from fedforget.errors import one_of
from fedforget.models import Recommender
from fedforget.server.rounds import Protocol
from fedforget.server.unlearning.baselines import Continue, FedRemove, Retrain
from fedforget.server.unlearning.fru import FRU, default_stride
from fedforget.server.unlearning.method import Method, PastStep

#: Rounds in which a model with a closed-form update is trained anew by default (docs/decisions/0010).
STEPS = 20
#: The built-in methods by name.
METHODS: dict[str, type[Method]] = {method.name: method for method in (FRU, Retrain, FedRemove, Continue)}


def build_method(name: str, **settings: object) -> Method:
    """A built-in method by name."""
    if name not in METHODS:
        raise one_of("method", name, sorted(METHODS))
    return METHODS[name](**settings)


def default_method(model: Recommender) -> Method:
    """What ``forget()`` does for a model."""
    return condensed_retrain(model) if model.closed_form else FRU().for_model(model)


def condensed_retrain(model: Recommender) -> Retrain:
    """Retrain in few communication rounds: from new cohorts for a closed form, else in FRU's strides."""
    return Retrain(steps=STEPS) if model.closed_form else Retrain(stride=default_stride(model))


def why_chosen(method: Method, model: Recommender, protocol: Protocol) -> str:
    """Why a method is used for a model, for estimates and receipts."""
    if method != default_method(model).for_protocol(protocol):
        return "as asked for"
    if model.closed_form:
        return f"the default for {model.name}, which learns from scratch in {STEPS} rounds and has no epochs to shorten"
    return f"the default for {model.name}: past rounds again in fewer epochs, with the lengths in the devices' logs"


__all__ = [
    "FRU",
    "METHODS",
    "Continue",
    "FedRemove",
    "Method",
    "PastStep",
    "Retrain",
    "build_method",
    "condensed_retrain",
    "default_method",
    "why_chosen",
]
