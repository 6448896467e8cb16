"""Recommenders: what is learned, without regard to whose machine it runs on."""

from typing import Any

from fedforget.errors import ConfigError, one_of
from fedforget.models.ials import IALS
from fedforget.models.lightgcn import LightGCN
from fedforget.models.mf import MF
from fedforget.models.ncf import NCF
from fedforget.models.parameters import Layout, Public
from fedforget.models.recommender import LocalModel, Recommender

MODELS: dict[str, type[Recommender]] = {model.name: model for model in (IALS, NCF, LightGCN, MF)}

__all__ = ["IALS", "MF", "MODELS", "NCF", "Layout", "LightGCN", "LocalModel", "Public", "Recommender", "build_model"]


def build_model(name: str, **settings: Any) -> Recommender:
    """A built-in model by its name, or one of your own that was registered in ``MODELS``."""
    if name not in MODELS:
        raise one_of("model", name, sorted(MODELS))
    try:
        return MODELS[name](**settings)
    except TypeError as error:
        raise ConfigError(f"Model {name!r} does not take these settings: {settings}.", f"{error}.") from error
