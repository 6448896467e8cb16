"""fedforget: federated recommendation that can forget.

import fedforget as ff

train, test = ff.load("ml-100k").split(test=0.2, seed=0)
fed = ff.Federation(train, seed=0, path="runs/a")  # Fed-iALS; or model=ff.LightGCN(), ff.NCF(), ff.MF()
fed.fit(rounds=100)
print(fed.evaluate(test))
receipt = fed.forget([17, 23])
print(receipt)
print(fed.recommend(user=5, k=10))
"""

from fedforget.attacks import Attack
from fedforget.data import Interactions, load, synthetic
from fedforget.device.compute import Compute
from fedforget.device.log import Log
from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError, DataError, FedForgetError, RunError
from fedforget.evaluation import Evaluation, Ranking
from fedforget.federation import Federation
from fedforget.models import IALS, MF, NCF, LightGCN, LocalModel, Public, Recommender
from fedforget.server.optimiser import SGD, Adagrad, Adam, Optimiser, Yogi
from fedforget.server.rounds import Protocol
from fedforget.server.unlearning import FRU, Continue, FedRemove, Method, PastStep, Retrain
from fedforget.server.unlearning.estimate import Estimate
from fedforget.server.unlearning.receipt import Receipt
from fedforget.version import __version__

__all__ = [
    "FRU",
    "IALS",
    "MF",
    "NCF",
    "SGD",
    "Adagrad",
    "Adam",
    "Attack",
    "Compute",
    "ConfigError",
    "Continue",
    "DataError",
    "Estimate",
    "Evaluation",
    "FedForgetError",
    "FedRemove",
    "Federation",
    "Interactions",
    "LightGCN",
    "LocalModel",
    "LocalTraining",
    "Log",
    "Method",
    "Optimiser",
    "PastStep",
    "Protocol",
    "Public",
    "Ranking",
    "Receipt",
    "Recommender",
    "Retrain",
    "RunError",
    "Sampler",
    "Yogi",
    "__version__",
    "load",
    "synthetic",
]
