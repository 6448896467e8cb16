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
        """Whether there is a kernel for exactly this model (a subclass may score differently) and its loss."""
        return type(model) in (MF, LightGCN) or (type(model) is NCF and model.loss == "bce")

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        """Train the clients of a plan."""
        out = Trained.empty(plan, self.model, private)
        lr, batch = self.training.lr, self.training.batch
        data = (plan.item_ptr, plan.items, plan.positives, plan.sample_ptr, plan.left)

        def run(order: Places, counter: Places) -> None:
            if isinstance(self.model, NCF):
                mlp.train_clients(
                    order,
                    counter,
                    *data,
                    plan.batch_keys,
                    public.items,
                    public.dense,
                    private,
                    self.model.hidden,
                    epochs,
                    batch,
                    lr,
                    out.rows,
                    out.dense,
                    out.private,
                    out.losses,
                )
            else:
                dot.train_clients(
                    order,
                    counter,
                    *data,
                    plan.right,
                    plan.batch_keys,
                    public.items,
                    private,
                    isinstance(self.model, LightGCN),
                    epochs,
                    batch,
                    lr,
                    out.rows,
                    out.private,
                    out.losses,
                )

        self.workers.run(run, costs=steps(plan, epochs, batch) * (np.diff(plan.item_ptr) + public.dense.size + 1))
        return out
