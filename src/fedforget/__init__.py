"""fedforget: federated recommendation that can forget.

import fedforget as ff

train, test = ff.load("ml-100k").split(test=0.2, seed=0)
fed = ff.Federation(train, model=ff.LightGCN(), seed=0, path="runs/a")
fed.fit(rounds=200)
print(fed.evaluate(test))
print(fed.recommend(user=5, k=10))
"""

from fedforget.data import Interactions, load, synthetic
from fedforget.device.devices import Compute
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError, DataError, FedForgetError, RunError
from fedforget.evaluation import Evaluation, Ranking
from fedforget.federation import Federation
from fedforget.models import MF, NCF, LightGCN, LocalModel, Public, Recommender
from fedforget.server.rounds import Protocol

__version__ = "0.1.0"

__all__ = [
    "MF",
    "NCF",
    "Compute",
    "ConfigError",
    "DataError",
    "Evaluation",
    "FedForgetError",
    "Federation",
    "Interactions",
    "LightGCN",
    "LocalModel",
    "LocalTraining",
    "Protocol",
    "Public",
    "Ranking",
    "Recommender",
    "RunError",
    "Sampler",
    "load",
    "synthetic",
]
