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
from fedforget.models import NCF, Recommender
from fedforget.server.optimiser import SGD, Adam
from fedforget.server.rounds import Protocol

PRESETS = ["default", "paper"]
#: How many rounds commands train by default, and over which the server's learning rate falls.
ROUNDS = 100
#: The spread of initial embeddings in the reproduction of the paper (docs/decisions/0003).
PAPER_STD = 0.1


@dataclass(frozen=True)
class Recipe:
    """The model as it starts, how negatives are drawn, how devices train and how the server runs its rounds."""

    model: Recommender
    sampler: Sampler
    training: LocalTraining
    protocol: Protocol


def recipe(preset: str, model: Recommender) -> Recipe:
    """The recipe of a preset for a model. What the model sets itself, other than to its default, stays."""
    if preset not in PRESETS:
        raise one_of("preset", preset, PRESETS)
    if preset == "paper":
        return _paper(model)
    if model.closed_form:
        optimiser = Adam(lr=0.05, horizon=ROUNDS)
        return Recipe(model, Sampler(), LocalTraining(epochs=1), Protocol(optimiser=optimiser))
    if isinstance(model, NCF):
        return Recipe(model, Sampler(), LocalTraining(), Protocol(aggregation="root", optimiser=SGD(lr=0.3)))
    protocol = Protocol(aggregation="root", optimiser=SGD(lr=0.3, horizon=ROUNDS))
    return Recipe(model, Sampler(), LocalTraining(refit=model.dot_product), protocol)


def _paper(model: Recommender) -> Recipe:
    if model.closed_form:
        raise ConfigError(
            f"The paper has no recipe for {model.name}.", "Use preset 'default', or model lightgcn, ncf or mf."
        )
    if model.init_std == type(model).init_std:
        model = replace(model, init_std=PAPER_STD)
    return Recipe(model, Sampler(), LocalTraining(), Protocol())
