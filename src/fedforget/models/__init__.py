"""Recommender models and their parameters."""

from fedforget.models.ials import IALS
from fedforget.models.lightgcn import LightGCN
from fedforget.models.mf import MF
from fedforget.models.ncf import NCF
from fedforget.models.parameters import GlobalParameters, Layout
from fedforget.models.recommender import LocalModel, Recommender
from fedforget.runtime.components import Registry

MODELS = Registry("model", "fedforget.models", Recommender, IALS, NCF, LightGCN, MF)

__all__ = ["IALS", "MF", "MODELS", "NCF", "GlobalParameters", "Layout", "LightGCN", "LocalModel", "Recommender"]
