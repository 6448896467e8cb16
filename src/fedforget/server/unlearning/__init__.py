"""Unlearning: methods, their execution, estimates and receipts."""

from fedforget.models import Recommender
from fedforget.runtime.components import Registry
from fedforget.server.server_config import ServerConfig
from fedforget.server.unlearning.baselines import Continue, FedRemove, Retrain
from fedforget.server.unlearning.fru import FRU, default_stride
from fedforget.server.unlearning.method import Method, PastStep

#: Rounds in which a model with a closed-form update is retrained by default (docs/decisions/0010).
STEPS = 20
METHODS = Registry("method", "fedforget.methods", Method, FRU, Retrain, FedRemove, Continue)


def default_method(model: Recommender) -> Method:
    """The default method of ``forget()`` for a model."""
    return condensed_retrain(model) if model.closed_form else FRU()


def condensed_retrain(model: Recommender) -> Retrain:
    """Retrain in few communication rounds: with new cohorts for a closed-form model, else in FRU's strides."""
    return Retrain(steps=STEPS) if model.closed_form else Retrain(stride=default_stride(model))


def why_chosen(method: Method, model: Recommender, server: ServerConfig) -> str:
    """Why a method is used, for estimates and receipts."""
    if method != default_method(model).for_model(model).for_server(server):
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
    "condensed_retrain",
    "default_method",
    "why_chosen",
]
