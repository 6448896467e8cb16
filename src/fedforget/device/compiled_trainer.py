"""The compiled trainer: the built-in models' kernels, spread over worker threads."""

from __future__ import annotations

import numpy as np

from fedforget.device.kernels import dot, mlp
from fedforget.device.plan import Plan
from fedforget.device.training import Trained, steps
from fedforget.models import MF, NCF, GlobalParameters, LightGCN, Recommender
from fedforget.models.parameters import Array
from fedforget.protocol.training import LocalTraining
from fedforget.runtime.workers import Places, Workers


class CompiledTrainer:
    """Trains one client at a time inside the cache of one core, as many at once as there are workers."""

    def __init__(self, model: Recommender, training: LocalTraining, workers: Workers) -> None:
        self.model = model
        self.training = training
        self.workers = workers

    @staticmethod
    def supports(model: Recommender) -> bool:
        """Whether there is a kernel for this model and its loss. Subclasses may score differently and have none."""
        return type(model) in (MF, LightGCN) or (type(model) is NCF and model.loss == "bce")

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        trained = Trained.empty(plan, self.model, private)
        lr, batch = self.training.lr, self.training.batch
        data = plan.item_ptr, plan.items, plan.positives, plan.sample_ptr, plan.left, plan.right, plan.batch_keys
        out = trained.rows, trained.dense, trained.private, trained.losses

        def run(order: Places, counter: Places) -> None:
            if isinstance(self.model, NCF):
                parameters = public.items, public.dense, private
                mlp.train_clients(order, counter, data, *parameters, self.model.hidden, epochs, batch, lr, out)
            else:
                propagate = isinstance(self.model, LightGCN)
                dot.train_clients(order, counter, data, public.items, private, propagate, epochs, batch, lr, out)

        self.workers.run(run, costs=steps(plan, epochs, batch) * (np.diff(plan.item_ptr) + public.dense.size + 1))
        return trained
