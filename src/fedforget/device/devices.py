"""Devices: what a device can be asked to do, for the one user of a phone or for all users of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.device.compiled_trainer import CompiledTrainer
from fedforget.device.log import DeviceLog
from fedforget.device.plain_trainer import PlainTrainer
from fedforget.device.plan import Plan, draw_plan
from fedforget.device.sampling import Sampler
from fedforget.device.stacked_trainer import StackedTrainer
from fedforget.device.training import TRAINERS, LocalTraining, Trainer
from fedforget.errors import ConfigError, one_of
from fedforget.models import Public, Recommender
from fedforget.models.parameters import Array
from fedforget.randomness import UserId
from fedforget.updates import Updates
from fedforget.workers import Workers


@dataclass(frozen=True)
class Compute:
    """Where local training runs: which trainer, on which torch device, on how many workers. Never a result's cause."""

    trainer: str = "auto"
    device: str = "cpu"
    workers: int | None = None

    def check(self, model: Recommender) -> None:
        """Refuse what cannot be, before anything is written."""
        self.build(model, LocalTraining(), Workers(self.workers))

    def build(self, model: Recommender, training: LocalTraining, workers: Workers) -> Trainer:
        """The trainer for a model: its compiled kernel where there is one, else stacked tensors."""
        if self.trainer not in TRAINERS:
            raise one_of("trainer", self.trainer, TRAINERS)
        _check_device(self.device)
        if self.trainer == "plain":
            return PlainTrainer(model, training, self.device)
        compiled = CompiledTrainer.supports(model) and self.device == "cpu"
        if self.trainer == "compiled" and not compiled:
            raise ConfigError(
                f"There is no compiled kernel for {model} on {self.device!r}.", "Use trainer 'auto' or 'stacked'."
            )
        if compiled and self.trainer != "stacked":
            return CompiledTrainer(model, training, workers)
        return StackedTrainer(model, training, workers, self.device)


def _check_device(name: str) -> None:
    if name != "cpu" and not name.startswith("cuda"):
        raise one_of("device", name, ["cpu", "cuda"])
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"Device {name!r} is not there: torch sees no CUDA device.", "Use device 'cpu'.")


#: Why a device has no update to send.
DIVERGED = "training diverged on the device"


class Devices:
    """The devices of some users: their interactions, private parameters and logs, and the operations on them.

    ``restore`` says from which round on they go; nothing else may be asked of them before.
    """

    _private: Array

    def __init__(
        self,
        interactions: Interactions,
        model: Recommender,
        sampler: Sampler,
        training: LocalTraining,
        log: DeviceLog,
        *,
        seed: int,
        compute: Compute | None = None,
    ) -> None:
        compute = compute or Compute()
        self.interactions = interactions
        self.model = model
        self.sampler = sampler
        self.log = log
        self.seed = seed
        self.workers = Workers(compute.workers)
        self._trainer = compute.build(model, training, self.workers)
        self._place = {user: place for place, user in enumerate(interactions.user_ids.tolist())}

    def private(self, user: UserId) -> Array:
        """One user's private parameters as they are now."""
        private: Array = self._private[self._place[user]]
        return private

    def train(
        self, round_: int, public: Public, users: Sequence[UserId], epochs: int
    ) -> tuple[Updates, dict[UserId, str]]:
        """Train these users from ``public``; log and keep what is private, return what is to be sent.

        A user whose training diverged keeps what it had and is named with the reason. A round that is asked for
        again starts from where it started before.
        """
        if self.log.last_round() >= round_:
            self.roll_back(round_ - 1)
        places = np.array([self._place[user] for user in users], np.int64)
        private = self._private[places]
        plan = self._plan(round_, public, places, private)
        trained = self._trainer(plan, public, private, epochs)
        sound: NDArray[np.bool_] = np.asarray(np.isfinite(trained.private).all(axis=1))
        updates = Updates(
            list(users), plan.item_ptr, plan.items, trained.rows, trained.dense, plan.positives, trained.losses
        ).only(sound)
        self.log.append(round_, updates.users, trained.private[sound])
        self._private[places[sound]] = trained.private[sound]
        return updates, {user: DIVERGED for user, fine in zip(users, sound, strict=True) if not fine}

    def restore(self, round_: int) -> None:
        """Take up every device's state after a round, as its log has it."""
        self._private = self.model.init_private(self.interactions.user_keys, self.seed)
        for user, row in self.log.latest(round_).items():
            if user in self._place:
                self._private[self._place[user]] = row

    def roll_back(self, round_: int) -> None:
        """Return every device, and its log, to the state after a round."""
        self.log.roll_back(round_)
        self.restore(round_)

    def _plan(self, round_: int, public: Public, places: NDArray[np.int64], private: Array) -> Plan:
        own_ptr, own_items = self.interactions.rows(places)
        return draw_plan(
            self.sampler,
            negatives=self.model.negatives,
            pairwise=self.model.loss == "bpr",
            items=public.items,
            users=private,
            own_ptr=own_ptr,
            own_items=own_items,
            user_keys=self.interactions.user_keys[places],
            seed=self.seed,
            round_=round_,
            workers=self.workers,
        )
