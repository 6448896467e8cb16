"""Trainers of a model whose user vector has a closed form: one computation per client, no epochs."""

from __future__ import annotations

import numpy as np

from fedforget.device.kernels import als
from fedforget.device.plan import Plan
from fedforget.device.training import Trained
from fedforget.models import IALS, GlobalParameters
from fedforget.models.parameters import Array
from fedforget.runtime.workers import Places, Workers


class CompiledClosedForm:
    """Fits the clients of a plan in compiled code, as many at once as there are workers. ``epochs`` is not used."""

    def __init__(self, model: IALS, workers: Workers) -> None:
        self.model = model
        self.workers = workers

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        trained = Trained.empty(plan, self.model, private)
        items = np.ascontiguousarray(public.items)
        gram, reg = items.T @ items, self.model.user_reg(len(items))
        out = trained.rows, trained.dense, trained.losses

        def run(order: Places, counter: Places) -> None:
            als.contributions(order, counter, plan.item_ptr, plan.items, items, gram, self.model.alpha, reg, *out)

        self.workers.run(run, costs=np.diff(plan.item_ptr) + self.model.dim)
        return trained


class PlainClosedForm:
    """One client at a time in ordinary PyTorch, which tests compare the compiled code with."""

    def __init__(self, model: IALS) -> None:
        self.model = model

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        from fedforget.runtime.tensors import torch

        out = Trained.empty(plan, self.model, private)
        table = torch.from_numpy(public.items)
        for client in range(len(plan)):
            used = torch.from_numpy(plan.client_items(client).astype(np.int64))
            own = torch.zeros(1, len(table))
            own[0, used] = 1
            user = self.model.user(self.model.local(torch.empty(1, 0), table[None], torch.empty(1, 0), own))[0]
            weight = self.model.alpha * np.sqrt(len(table) / max(used.numel(), 1))
            scores = table[used] @ user
            place = slice(plan.item_ptr[client], plan.item_ptr[client + 1])
            out.rows[place] = torch.outer(1 + weight - weight * scores, user).numpy()
            lower = torch.tril_indices(self.model.dim, self.model.dim)
            out.dense[client] = torch.outer(user, user)[lower[0], lower[1]].numpy()
            out.losses[client] = float(((1 - scores) ** 2).mean()) if used.numel() else 0.0
        return out
