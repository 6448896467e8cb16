"""Compute: where local training runs. Does not affect results."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.device.closed_form import CompiledClosedForm, PlainClosedForm
from fedforget.device.compiled_trainer import CompiledTrainer
from fedforget.device.training import TRAINERS, Trainer
from fedforget.errors import ConfigError, unknown_choice
from fedforget.models import IALS, Recommender
from fedforget.protocol.training import LocalTraining
from fedforget.runtime.workers import Workers


@dataclass(frozen=True)
class Compute:
    """Where local training runs: the trainer, the torch device and the number of workers. Does not affect results."""

    trainer: str = "auto"
    device: str = "cpu"
    workers: int | None = None

    def check(self, model: Recommender) -> None:
        """Refuse settings that do not work with a model."""
        self.build(model, LocalTraining(), Workers(self.workers))

    def build(self, model: Recommender, training: LocalTraining, workers: Workers) -> Trainer:
        """The trainer for a model. ``auto`` is the compiled kernel if there is one, else stacked tensors."""
        if self.trainer not in TRAINERS:
            raise unknown_choice("trainer", self.trainer, TRAINERS)
        _check_device(self.device)
        if isinstance(model, IALS):
            if self.trainer == "stacked" or self.device != "cpu":
                raise ConfigError(
                    f"{model.name} cannot use trainer {self.trainer!r} on {self.device!r}.",
                    "It has one short computation per round: use trainer 'auto' on 'cpu'.",
                )
            return PlainClosedForm(model) if self.trainer == "plain" else CompiledClosedForm(model, workers)
        if self.trainer == "plain":
            from fedforget.device.plain_trainer import PlainTrainer

            return PlainTrainer(model, training, self.device)
        compiled = CompiledTrainer.supports(model) and self.device == "cpu"
        if self.trainer == "compiled" and not compiled:
            raise ConfigError(
                f"There is no compiled kernel for {model} on {self.device!r}.", "Use trainer 'auto' or 'stacked'."
            )
        if compiled and self.trainer != "stacked":
            return CompiledTrainer(model, training, workers)
        from fedforget.device.stacked_trainer import StackedTrainer

        return StackedTrainer(model, training, workers, self.device)


def _check_device(name: str) -> None:
    if name == "cpu":
        return
    if not name.startswith("cuda"):
        raise unknown_choice("device", name, ["cpu", "cuda"])
    from fedforget.runtime.tensors import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"Device {name!r} is not available: torch finds no CUDA device.", "Use device 'cpu'.")
