"""Unlearning: methods, how they are carried out, and the receipt of what was done."""

from fedforget.errors import one_of
from fedforget.models import Recommender
from fedforget.server.unlearning.baselines import Continue, FedRemove, Retrain
from fedforget.server.unlearning.fru import FRU
from fedforget.server.unlearning.method import Method, PastRound

#: The built-in methods by name.
METHODS: dict[str, type[Method]] = {method.name: method for method in (FRU, Retrain, FedRemove, Continue)}


def build_method(name: str, **settings: object) -> Method:
    """A built-in method by name."""
    if name not in METHODS:
        raise one_of("method", name, sorted(METHODS))
    return METHODS[name](**settings)


def default_method(model: Recommender) -> Method:
    """What ``forget()`` does for a model: FRU, or Retrain where a round has no epochs that FRU could leave out."""
    return Retrain() if model.closed_form else FRU()


__all__ = [
    "FRU",
    "METHODS",
    "Continue",
    "FedRemove",
    "Method",
    "PastRound",
    "Retrain",
    "build_method",
    "default_method",
]
