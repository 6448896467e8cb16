from .data import Interactions, load, synthetic
from .device.compute import Compute
from .device.device import Device
from .errors import ConfigError, DataError, FedForgetError, RunError
from .evaluation import Evaluation, Ranking
from .experiments.forgetting.audit import audit
from .models import IALS, MF, NCF, GlobalParameters, LightGCN, LocalModel, Recommender
from .protocol.attack import Attack
from .protocol.encoding import Encoding
from .protocol.log import Log
from .protocol.sampler import ItemSampler, MixedSampler, RandomSampler, Sampler, UserSampler
from .protocol.training import LocalTraining
from .protocol.updates import Updates
from .runtime.components import register
from .server.aggregation import AggregationRule, Step
from .server.optimiser import SGD, Adagrad, Adam, Optimiser, Yogi
from .server.presets import configure
from .server.receipt import Receipt
from .server.run_config import RunConfig
from .server.server_config import ServerConfig
from .server.state import ServerState
from .server.unlearning import FRU, Continue, FedRemove, Method, PastStep, Retrain
from .server.unlearning.estimate import Estimate
from .simulation.federation import Federation
from .version import __version__

__all__ = [
    "FRU",
    "IALS",
    "MF",
    "NCF",
    "SGD",
    "Adagrad",
    "Adam",
    "AggregationRule",
    "Attack",
    "Compute",
    "ConfigError",
    "Continue",
    "DataError",
    "Device",
    "Encoding",
    "Estimate",
    "Evaluation",
    "FedForgetError",
    "FedRemove",
    "Federation",
    "GlobalParameters",
    "Interactions",
    "ItemSampler",
    "LightGCN",
    "LocalModel",
    "LocalTraining",
    "Log",
    "Method",
    "MixedSampler",
    "Optimiser",
    "PastStep",
    "RandomSampler",
    "Ranking",
    "Receipt",
    "Recommender",
    "Retrain",
    "RunConfig",
    "RunError",
    "Sampler",
    "ServerConfig",
    "ServerState",
    "Step",
    "Updates",
    "UserSampler",
    "Yogi",
    "__version__",
    "audit",
    "configure",
    "load",
    "register",
    "synthetic",
]
