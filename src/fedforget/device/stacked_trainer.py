"""The stacked trainer: any model, on any torch device, with the cohort as a batch dimension.

Clients are sorted by their number of steps, so that those still training are always the first ones of the stack. They
are grouped so that weights, gradients and moments stay in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedforget.device.kernels.adam import BETA_1, BETA_2, EPSILON
from fedforget.device.objective import objective
from fedforget.device.plan import Plan
from fedforget.device.training import Trained, steps
from fedforget.models import GlobalParameters, Recommender
from fedforget.models.parameters import Array
from fedforget.protocol.training import LocalTraining
from fedforget.runtime import randomness
from fedforget.runtime.compiled import exact
from fedforget.runtime.tensors import torch
from fedforget.runtime.workers import Places, Workers, taken

#: Clients trained together on the CPU; the state of more clients does not fit into the cache.
GROUP = 16


class StackedTrainer:
    """Trains groups of clients as stacked tensors with one backward pass for all of them."""

    def __init__(
        self, model: Recommender, training: LocalTraining, workers: Workers, device: str = "cpu", group: int = GROUP
    ) -> None:
        self.model = model
        self.training = training
        self.workers = workers
        self.device = device
        self.group = group

    def __call__(self, plan: Plan, public: GlobalParameters, private: Array, epochs: int) -> Trained:
        out = Trained.empty(plan, self.model, private)
        n_steps = steps(plan, epochs, self.training.batch)
        order = np.argsort(-n_steps, kind="stable")
        size = self.group if self.device == "cpu" else order.size
        groups = [order[start : start + size] for start in range(0, order.size, max(size, 1))]

        def run(places: Places, counter: Places) -> None:
            for group in taken(places, counter):
                self._train(groups[group], n_steps, plan, public, private, epochs, out)

        self.workers.run(run, costs=np.array([n_steps[group].sum() for group in groups], np.int64))
        return out

    def _train(
        self,
        clients: NDArray[np.int64],
        n_steps: NDArray[np.int64],
        plan: Plan,
        public: GlobalParameters,
        private: Array,
        epochs: int,
        out: Trained,
    ) -> None:
        stack = self._stack(clients, plan, public, private)
        start = [part.clone() for part in stack]
        moments = [(torch.zeros_like(part), torch.zeros_like(part)) for part in stack]
        batches = np.full((clients.size, int(n_steps[clients[0]]), self.training.batch), -1, np.int32)
        _fill_batches(clients, plan.sample_ptr, plan.batch_keys, epochs, self.training.batch, batches)
        left, right, weight = self._samples(clients, plan, batches)
        is_own = np.arange(stack[0].shape[1])[None] < plan.positives[clients][:, None]
        own = self._tensor(is_own.astype(np.float32))
        losses = torch.zeros(clients.size, device=self.device)
        last_epoch = self._tensor(n_steps[clients] - n_steps[clients] // max(epochs, 1))
        for step in range(batches.shape[1]):
            active = int((n_steps[clients] > step).sum())
            parts = [part[:active].detach().requires_grad_() for part in stack]
            items, user, dense = parts
            local = self.model.local(user, items, dense, own[:active])
            loss = objective(self.model, local, left[:active, step], right[:active, step])
            shares = weight[:active, step]
            gradients = torch.autograd.grad((loss * shares).sum(), parts, allow_unused=True)
            with torch.no_grad():
                losses[:active] += torch.where(last_epoch[:active] <= step, (loss * (shares > 0)).sum(1), 0)
                for part, gradient, (m, v) in zip(stack, gradients, moments, strict=True):
                    if gradient is not None:
                        _adam(part[:active], gradient, m[:active], v[:active], step + 1, self.training.lr)
        changed = [(part - before).cpu().numpy() for part, before in zip(stack, start, strict=True)]
        for place, client in enumerate(clients):
            n_rows = plan.item_ptr[client + 1] - plan.item_ptr[client]
            out.rows[plan.item_ptr[client] : plan.item_ptr[client + 1]] = changed[0][place, :n_rows]
        out.private[clients] = stack[1].cpu().numpy()
        out.dense[clients] = changed[2]
        counts = np.diff(plan.sample_ptr)[clients]
        out.losses[clients] = losses.cpu().numpy() / np.maximum(counts, 1)

    def _stack(self, clients: NDArray[np.int64], plan: Plan, public: GlobalParameters, private: Array) -> list[Tensor]:
        """Item rows (padded with zeros), private rows and dense tensors of a group."""
        n_rows = int(np.diff(plan.item_ptr)[clients].max())
        items = np.zeros((clients.size, n_rows, public.items.shape[1]), np.float32)
        for place, client in enumerate(clients):
            used = plan.client_items(client)
            items[place, : used.size] = public.items[used]
        dense = np.repeat(public.dense[None], clients.size, axis=0)
        return [self._tensor(part) for part in (items, private[clients], dense)]

    def _samples(
        self, clients: NDArray[np.int64], plan: Plan, batches: NDArray[np.int32]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both sides and the weights of samples, (C, steps, B). A sample weighs 1 / (size of its batch), padding 0."""
        real = batches >= 0
        place = np.where(real, batches, 0) + plan.sample_ptr[clients][:, None, None]
        place = np.minimum(place, max(plan.left.size - 1, 0))
        left = plan.left[place].astype(np.int64)
        right = plan.right[place].astype(np.int64)
        weight = real / np.maximum(real.sum(-1, keepdims=True), 1)
        left[~real] = right[~real] = 0
        return self._tensor(left), self._tensor(right), self._tensor(weight.astype(np.float32))

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


@exact
def _fill_batches(clients, sample_ptr, keys, epochs, batch, out) -> None:  # type: ignore[no-untyped-def]
    """The samples of every step of every client; -1 where a batch is not full."""
    state = np.empty(1, np.uint64)
    for place in range(clients.size):
        c = clients[place]
        order = np.arange(sample_ptr[c + 1] - sample_ptr[c]).astype(np.int32)
        state[0] = keys[c]
        step = 0
        for _ in range(epochs):
            randomness.shuffle(state, order)
            for start in range(0, order.size, batch):
                chosen = order[start : start + batch]
                out[place, step, : chosen.size] = chosen
                step += 1


def _adam(w: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, lr: float) -> None:
    m.lerp_(g, 1 - BETA_1)
    v.mul_(BETA_2).addcmul_(g, g, value=1 - BETA_2)
    root = v.sqrt().div_((1 - BETA_2**step) ** 0.5).add_(EPSILON)
    w.addcdiv_(m, root, value=-lr / (1 - BETA_1**step))
