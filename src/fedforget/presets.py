"""Presets: how a model is trained unless told otherwise.

``default`` was chosen on validation parts of several data sets by one rule (docs/decisions/0009) and is meant for data
that nobody has tuned anything on. ``paper`` is the recipe of the FRU paper, which ``fedforget reproduce`` measures; it
exists for the models that are trained in local epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedforget.device.sampling import Sampler
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError, one_of
from fedforget.models import MF, LightGCN, Recommender
from fedforget.server.optimiser import SGD, Adam
from fedforget.server.rounds import Protocol

PRESETS = ["default", "paper"]
#: How many rounds commands train by default, and over which the server's learning rate falls.
ROUNDS = 100


@dataclass(frozen=True)
class Recipe:
    """How negatives are drawn, how devices train and how the server runs its rounds."""

    sampler: Sampler
    training: LocalTraining
    protocol: Protocol


def recipe(preset: str, model: Recommender) -> Recipe:
    """The recipe of a preset for a model."""
    if preset not in PRESETS:
        raise one_of("preset", preset, PRESETS)
    if preset == "paper":
        if model.closed_form:
            raise ConfigError(f"The paper has no recipe for {model.name}.", "Use preset 'default'.")
        return Recipe(Sampler(), LocalTraining(), Protocol())
    if model.closed_form:
        return Recipe(Sampler(), LocalTraining(epochs=1), Protocol(optimiser=Adam(lr=0.05, horizon=ROUNDS, final=0.2)))
    root = Protocol(aggregation="root", optimiser=SGD(lr=0.3))
    if isinstance(model, MF | LightGCN):
        return Recipe(Sampler(), LocalTraining(refit=True), root)
    return Recipe(Sampler(), LocalTraining(), Protocol())


def with_horizon(protocol: Protocol, rounds: int) -> Protocol:
    """The same protocol with a learning rate that falls over so many rounds, if it falls at all."""
    optimiser = protocol.optimiser
    if not optimiser.horizon or rounds < 1:
        return protocol
    return replace(protocol, optimiser=replace(optimiser, horizon=rounds))
