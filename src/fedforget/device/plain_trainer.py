"""The plain trainer: one client at a time in ordinary PyTorch. Slow and simple: tests compare the others with it."""

from __future__ import annotations

import numpy as np

from fedforget.device.objective import objective
from fedforget.device.plan import Plan
from fedforget.device.training import Trained
from fedforget.models import GlobalParameters, Recommender
from fedforget.models.parameters import Array
from fedforget.protocol.training import LocalTraining
from fedforget.runtime import randomness
from fedforget.runtime.tensors import torch


class PlainTrainer:
    """Autograd and torch's own fused Adam on a client's compact item table."""

    def __init__(self, model: Recommender, training: LocalTraining, device: str = "cpu") -> None:
        self.model = model
        self.training = training
        self.device = device

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        out = Trained.empty(plan, self.model, private)
        for client in range(len(plan)):
            self._train(client, plan, public, private, epochs, out)
        return out

    def _train(
        self, client: int, plan: Plan, public: GlobalParameters, private: Array, epochs: int, out: Trained
    ) -> None:
        used = plan.client_items(client)
        table, user, dense = (
            torch.tensor(part, device=self.device)[None].requires_grad_()
            for part in (public.items[used], private[client], public.dense)
        )
        own = (torch.arange(used.size, device=self.device) < int(plan.positives[client])).float()[None]
        left, right = (torch.from_numpy(side.astype(np.int64)).to(self.device) for side in plan.client_samples(client))
        learned = [part for part in (table, user, dense) if part.numel()]
        optimizer = torch.optim.Adam(learned, lr=self.training.lr, fused=True)
        state = plan.batch_keys[client : client + 1].copy()
        order = np.arange(left.numel(), dtype=np.int32)
        losses = [0.0]
        for _ in range(epochs):
            randomness.shuffle(state, order)
            losses = []
            batches = torch.from_numpy(order.astype(np.int64)).to(self.device)
            for chosen in torch.split(batches, self.training.batch):
                local = self.model.local(user, table, dense, own)
                loss = objective(self.model, local, left[chosen][None], right[chosen][None])
                optimizer.zero_grad()
                torch.autograd.backward(loss.mean())
                optimizer.step()
                losses.append(float(loss.detach().sum()))
        place = slice(plan.item_ptr[client], plan.item_ptr[client + 1])
        out.rows[place] = table.detach()[0].cpu().numpy() - public.items[used]
        out.dense[client] = dense.detach()[0].cpu().numpy() - public.dense
        out.private[client] = user.detach()[0].cpu().numpy()
        out.losses[client] = sum(losses) / max(left.numel(), 1)
